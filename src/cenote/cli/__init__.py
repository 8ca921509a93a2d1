"""The command line. It knows the configs and the public API; no model code."""
