"""Conditions under which a fault can act at all: legal traffic that a healthy engine must bear.

A ring that is too small harms only behind rejected drafts; lengths of rows matter only where they
differ. The healthy run that a fault is held against is made under the same conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from evalsuite.faults.patch import Patch, installed

SESSION = "evalsuite.mini.engine:Session.__init__"
DRAFTS = "evalsuite.mini.scheduler:Scheduler._drafts_to_verify"
# At most so many drafts are accepted in a request's steps, in turn; what is emitted stays right.
CAPS = (0, 5, 1, 2, 5, 0, 3)


@dataclass(frozen=True)
class Stress:
    """`rejections`: drafts are turned down in a fixed pattern although they are right. `ragged`:
    requests verify unequal numbers of drafts. `blocks`: of the cache, for each request at once.
    `options`: of the session, as (name, value)."""

    rejections: bool = False
    ragged: bool = False
    blocks: float | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        told = [f"{name} {value}" for name, value in self.options]
        if self.blocks is not None:
            told.insert(0, f"{self.blocks:g} blocks of cache a request")
        if self.rejections:
            told.insert(0, "drafts turned down in a pattern")
        if self.ragged:
            told.insert(0, "requests with unequal numbers of drafts")
        return ", ".join(told) or "as in a normal run"

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have these conditions for the length of the block."""
        patches = [Patch(SESSION, _capped)] if self.rejections else []
        patches += [Patch(DRAFTS, _unequal)] if self.ragged else []
        with installed(patches):
            yield


NONE = Stress()
# A cache for a third of the requests: the others wait, and what a finished one held is handed on
# while graphs still run padded rows in its place.
SCARCE = Stress(blocks=4.5)


def _capped(init: Any) -> Any:
    def capped(self: Any, *args: Any, **named: Any) -> None:
        from evalsuite.mini.runner import Bounds

        init(self, *args, **named)
        k = self.options.k
        self.acceptance = lambda request: Bounds(0, min(k, CAPS[request.steps % len(CAPS)]))

    return capped


def _unequal(drafts: Any) -> Any:
    def unequal(self: Any, sequence: Any) -> int:
        wanted = (sequence.arrival + sequence.steps) % (self.limits.k + 1)
        return min(int(drafts(self, sequence)), int(wanted))

    return unequal
