"""What a fault is: where it comes from, what it changes, and where it must show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from evalsuite.faults.patch import Patch, installed
from evalsuite.faults.stress import NONE, Stress

# output: answers change; drafts: only the drafter is wrong; speed: only time; evidence: only what
# the gate is told; nothing: no answer, time or evidence can differ.
Effect = Literal["output", "drafts", "speed", "evidence", "nothing"]

FAMILIES = {
    "A": "kernel and dispatch selection",
    "B": "row, position and padding alignment",
    "C": "indexer, pools and cache addressing",
    "D": "recurrent state, prefix cache, rollback",
    "E": "drafter only",
    "F": "graph replay only",
    "G": "numerics and uninitialised memory",
    "H": "signatures of whole systems",
    "S": "the gate's own: what a server or a harness can get wrong",
}
# Eager arms need no capture, which is most of a short run on a CPU; a fault that acts under replay
# alone, or in the choice of a kernel, takes the others too.
DRAFTS = ("eager", "eager-mtp3")
BOTH = ("eager", "graph", "eager-mtp3", "mtp3")
# Wrong answers show by any of these; a wrong layer that the drafter shares, by acceptance too.
ANSWERS = ("equality", "accuracy", "degeneration", "collapse", "truncation")
SHARED = (*ANSWERS, "acceptance")


def _untouched(folder: Path) -> None:
    """Leave a run folder as it is."""


@dataclass(frozen=True)
class Fault:
    """One fault of the catalogue.

    `changes` says what is done to this engine. `arms` are those that matter, `checks` those of
    which one at least must fail. `patches` makes the patches anew for each activation, so that
    what they remember starts empty; `tamper` changes a finished run folder before it is judged.
    `blind` tells why the gate cannot see it, for a fault of which that is known; `blind_on` the one
    device or type on which it cannot, where it can on others.
    """

    id: str
    title: str
    source: str
    changes: str
    patches: Callable[[], Sequence[Patch]] = field(default=tuple, repr=False)
    arms: tuple[str, ...] = DRAFTS
    checks: tuple[str, ...] = SHARED
    effect: Effect = "output"
    stress: Stress = NONE
    tamper: Callable[[Path], None] = field(default=_untouched, repr=False)
    blind: str = ""
    blind_on: str = ""

    def unseen(self, device: str, dtype: str) -> str:
        """Why the gate cannot see it there; empty where it can."""
        return self.blind if self.blind_on in ("", device, dtype) else ""

    @property
    def family(self) -> str:
        """The letter of its family."""
        return self.id[0]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have the fault for the length of the block; sessions must be opened inside."""
        with installed(self.patches()):
            yield
