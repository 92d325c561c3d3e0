"""Faults of any size: how small a corruption the gate still sees."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from evalsuite.engines.base import Answer
from evalsuite.faults import seams
from evalsuite.faults.answers import Change, served
from evalsuite.faults.fault import Fault
from evalsuite.faults.numerics import perturbed
from evalsuite.faults.patch import Patch

ARMS = ("eager", "eager-mtp3")
CHECKS = ("equality", "accuracy", "degeneration", "acceptance", "collapse", "truncation")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


@dataclass(frozen=True)
class Grade:
    """One kind of corruption of the arm that drafts: `at(size, seed)` makes the fault, `least` and
    `most` are sizes between which it becomes visible. `change` makes what it does to a healthy
    answer, for one that does nothing else."""

    name: str
    unit: str
    least: float
    most: float
    at: Callable[[float, int], Fault]
    change: Callable[[float, int], Change] | None = None


def _fault(name: str, changes: str, patches: Callable[[], Sequence[Patch]]) -> Fault:
    return Fault(f"G-{name}", changes, "graded", changes, patches, ARMS, CHECKS)


def _in_verification(change: Callable[[seams.Call], Tensor]) -> Callable[[], Sequence[Patch]]:
    """Change attention in steps that verify drafts."""

    def changed(call: seams.Call) -> Tensor:
        verifies = call.meta.decode is not None and call.meta.decode.rows.shape[1] > 1
        return change(call) if verifies else call.healthy()

    return lambda: seams.attention(changed)


def noise(size: float, seed: int) -> Fault:
    """Noise of `size` of its own magnitude on every row; drawn by torch, whatever the seed."""
    return _fault(
        f"noise-{size:g}",
        f"noise of {size:g} of its magnitude on the attention of verification steps",
        _in_verification(lambda call: perturbed(call, 1.1, size)),
    )


def rows(share: float, seed: int) -> Fault:
    """A random share of rows is off by its own magnitude; drawn by torch, whatever the seed."""
    return _fault(
        f"rows-{share:g}",
        f"{share:g} of the rows of verification steps off by their own magnitude",
        _in_verification(lambda call: perturbed(call, share, 1.0)),
    )


def requests(share: float, seed: int) -> Fault:
    """A random share of the answers ends on another number."""
    changes = f"{share:g} of the answers end on another number"
    return _fault(f"requests-{share:g}", changes, lambda: served(other_numbers(share, seed)))


def other_numbers(share: float, seed: int) -> Change:
    """What `requests` does to an answer."""
    dice = random.Random(seed)

    def change(answer: Answer, number: int) -> Iterator[Answer]:
        hit = dice.random() < share
        yield _other(answer) if hit and answer.text and answer.token_ids else answer

    return change


def _other(answer: Answer) -> Answer:
    text = _LAST_NUMBER.sub(lambda found: str(int(found[0]) + 1), answer.text or "")
    ids = answer.token_ids or ()
    return replace(answer, text=text, token_ids=(*ids[:-2], *ids[-2:][::-1]))


GRADES = (
    Grade("requests", "share of requests hit", 1 / 256, 1 / 2, requests, other_numbers),
    Grade("noise", "noise on attention, share of its magnitude", 1e-5, 0.1, noise),
    Grade("rows", "share of rows hit", 1e-5, 0.1, rows),
)
