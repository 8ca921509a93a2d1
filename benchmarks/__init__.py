"""Measurements against other engines on the same machine, in the same run, on the same texts."""
