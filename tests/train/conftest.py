"""Shared settings of the training tests."""

from one_thread import one_thread

__all__ = ["one_thread"]
