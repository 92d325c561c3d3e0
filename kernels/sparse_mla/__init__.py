"""Ragged sparse MLA: kernels, their float64 references, and dispatch by capability.

Importing this package needs no triton; the modules that hold kernels import it.
"""
