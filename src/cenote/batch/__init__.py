"""Whole corpora: files and data frames in, vectors out, through the offline API."""
