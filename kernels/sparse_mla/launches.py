"""Counts of what was launched: the raw material of a run's evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sparse_mla.geometry import row_width


class Launch(NamedTuple):
    """One kind of launch. `kind` is prefill, decode or verify; `width` the rows of one request.

    A captured launch counts when it is captured, not when its graph is replayed.
    """

    kernel: str
    kind: str
    width: int

    @property
    def row_kind(self) -> str:
        """The row kind as geometries spell it."""
        return f"{self.kind}:{self.width}" if self.kind == "verify" else self.kind


_listeners: list[Counter[Launch]] = []


def count(kernel: str, row_kinds: frozenset[str]) -> None:
    """Count one launch of `kernel` for every kind of row in it, for whoever listens."""
    for counts in _listeners:
        for kind in row_kinds:
            counts[Launch(kernel, kind.partition(":")[0], row_width(kind))] += 1


@contextmanager
def counting() -> Iterator[Counter[Launch]]:
    """Count the launches made inside the `with` block."""
    counts: Counter[Launch] = Counter()
    _listeners.append(counts)
    try:
        yield counts
    finally:
        # By identity: two counters with equal counts are equal.
        _listeners[:] = [other for other in _listeners if other is not counts]
