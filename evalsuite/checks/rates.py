"""Paired comparison of how often something happens: the tool of several checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from evalsuite.reference import Reference
from evalsuite.runview import ArmView, Int8, RunView
from evalsuite.stats import holm, paired_pvalue

Trait = Callable[[str], Int8]


class Rise(NamedTuple):
    """How much more often something happens in an arm than in what it is compared with.

    `ours` and `theirs` are shares of answers; `p_holm` is adjusted over the comparisons made.
    """

    arm: str
    against: str
    ours: float
    theirs: float
    p_holm: float

    @property
    def rise(self) -> float:
        """The difference of the shares."""
        return self.ours - self.theirs


def rises(
    run: RunView,
    reference: Reference | None,
    ours: Callable[[ArmView], Int8],
    theirs: Callable[[str], Int8 | None],
    *,
    against_eager: bool,
) -> list[Rise]:
    """Compare each complete arm with its baseline, and with eager of the same run.

    `ours(arm)` and `theirs(arm name)` give 0 or 1 of shape (units, items); `theirs` is None where
    the reference has no such arm. One-sided exact paired tests, Holm over all of them.
    """
    pairs: list[tuple[str, str, Int8, Int8]] = []
    for name, arm in run.arms.items():
        if not arm.complete:
            continue
        accepted = theirs(name) if reference is not None else None
        if accepted is not None:
            pairs.append((name, "baseline", ours(arm), accepted))
        eager = run.arms.get("eager")
        if against_eager and eager is not None and eager.complete and name != "eager":
            pairs.append((name, "eager", ours(arm), ours(eager)))
    if not pairs:
        return []
    pvalues = [float(paired_pvalue(a, b, "greater")) for _, _, a, b in pairs]
    return [
        Rise(name, against, float(a.mean()), float(b.mean()), float(p))
        for (name, against, a, b), p in zip(pairs, holm(pvalues), strict=True)
    ]


def of_arm(found: Sequence[Rise]) -> Mapping[str, list[Rise]]:
    """Group by arm."""
    grouped: dict[str, list[Rise]] = {}
    for rise in found:
        grouped.setdefault(rise.arm, []).append(rise)
    return grouped
