"""Checking somebody's attention kernel: by numbers, in the miniature, by its route."""

from evalsuite.kernel_check.check import check_kernel

__all__ = ["check_kernel"]
