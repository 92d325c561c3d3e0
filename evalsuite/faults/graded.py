"""Faults of any size: how small a corruption the gate still sees, and after how many items."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from evalsuite.engines.base import Answer
from evalsuite.faults import seams
from evalsuite.faults.answers import served
from evalsuite.faults.fault import Fault
from evalsuite.faults.numerics import perturbed

ARMS = ("eager", "eager-mtp3")
CHECKS = ("equality", "accuracy", "degeneration", "acceptance", "collapse", "truncation")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


@dataclass(frozen=True)
class Grade:
    """One kind of corruption: `at(size)` makes the fault, `sizes` are those to try."""

    name: str
    unit: str
    sizes: tuple[float, ...]
    at: Callable[[float], Fault]


def _fault(name: str, changes: str, patches: object) -> Fault:
    return Fault(
        f"G-{name}", changes, "graded", changes, patches, ARMS, CHECKS  # type: ignore[arg-type]
    )  # fmt: skip


def noise(size: float) -> Fault:
    """Noise of `size` of its own magnitude on every row of attention in verification steps."""

    def change(call: seams.Call) -> object:
        verifies = call.meta.decode is not None and call.meta.decode.rows.shape[1] > 1
        return perturbed(call, 1.1, size) if verifies else call.healthy()

    return _fault(
        f"noise-{size:g}",
        f"noise of {size:g} of its magnitude on the attention of verification steps",
        lambda: seams.attention(change),  # type: ignore[arg-type]
    )


def rows(share: float) -> Fault:
    """A random share of rows in verification steps is off by its own magnitude."""

    def change(call: seams.Call) -> object:
        verifies = call.meta.decode is not None and call.meta.decode.rows.shape[1] > 1
        return perturbed(call, share, 1.0) if verifies else call.healthy()

    return _fault(
        f"rows-{share:g}",
        f"{share:g} of the rows of verification steps off by their own magnitude",
        lambda: seams.attention(change),  # type: ignore[arg-type]
    )


def requests(share: float) -> Fault:
    """A share of the answers of the arm that drafts ends on another number."""
    every = round(1 / share)
    count = [0]

    def change(answer: Answer, number: int) -> Iterator[Answer]:
        count[0] += 1
        if count[0] % every or not answer.text or not answer.token_ids:
            yield answer
            return
        text = _LAST_NUMBER.sub(lambda found: str(int(found[0]) + 1), answer.text)
        ids = (*answer.token_ids[:-2], *answer.token_ids[-2:][::-1])
        yield replace(answer, text=text, token_ids=ids)

    def patches() -> object:
        return served(change)

    return _fault(f"requests-{share:g}", f"{share:g} of the answers end on another number", patches)


TENTHS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
HALVES = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
GRADES = (
    Grade("noise", "noise, share of the output's magnitude", TENTHS, noise),
    Grade("rows", "share of rows hit", TENTHS, rows),
    Grade("requests", "share of requests hit", HALVES, requests),
)
