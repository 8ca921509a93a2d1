"""Kernels: each file holds one operation, its oracle in plain torch and the native call beside it.

`backend.py` says which of the two runs. Kernels know no modules and no models.
"""
