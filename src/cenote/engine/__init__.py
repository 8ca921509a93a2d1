"""The scheduler and its process: requests in, results out. No torch except in core.py."""
