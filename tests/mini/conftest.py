"""Shared settings of the engine's tests."""

from one_thread import one_thread

__all__ = ["one_thread"]
