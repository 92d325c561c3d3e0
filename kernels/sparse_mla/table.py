"""The kernels that dispatch knows.

Ours come first, then other projects' where they are installed, then those that packages offer
under the entry point group `sparse_mla.kernels`, then those that the caller registered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points

from sparse_mla.builtin import BUILTIN, EXTERNAL
from sparse_mla.entry import Entry, SparseMla

__all__ = ["Entry", "SparseMla", "entries", "registered"]

ENTRY_POINTS = "sparse_mla.kernels"

_registered: list[Entry] = []


@cache
def _offered() -> tuple[Entry, ...]:
    """Kernels of other packages. Raises TypeError where an entry point names no Entry."""
    found = []
    for point in entry_points(group=ENTRY_POINTS):
        entry = point.load()
        if not isinstance(entry, Entry):
            raise TypeError(f"entry point {point.name} of {ENTRY_POINTS} is no sparse_mla Entry")
        found.append(entry)
    return tuple(found)


def entries() -> tuple[Entry, ...]:
    """Every kernel of the table, in order."""
    return (*BUILTIN, *EXTERNAL, *_offered(), *_registered)


@contextmanager
def registered(entry: Entry) -> Iterator[None]:
    """Put one more kernel into the table for the `with` block.

    Raises ValueError where the name is taken.
    """
    if any(entry.name == other.name for other in entries()):
        raise ValueError(f"there is a kernel {entry.name!r} already")
    _registered.append(entry)
    try:
        yield
    finally:
        _registered.remove(entry)
