"""The hypotheses of the accuracy family: what is paired with what, and who stands by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from evalsuite.stats.exchange import Bystanders, paired_pvalue
from evalsuite.stats.paired import Pairing, pair_means
from evalsuite.stats.proportions import FloatArray, IntArray

Against = Literal["baseline", "eager", "plain"]
Answers = Mapping[str, IntArray]
Right = Mapping[str, tuple[IntArray, int]]
EAGER = "eager"
POOLED = "mtp*"


class Hypothesis(NamedTuple):
    """`arm` (or `mtp*`, the MTP arms pooled) lost nothing against `against`.

    `ours` (..., U, items) and `theirs` (..., V, items) count the right ones among `per_unit`
    answers; leading axes are separate data sets.
    """

    arm: str
    against: Against
    ours: IntArray
    theirs: IntArray
    per_unit: int
    bystanders: Bystanders | None

    def pvalue(self) -> FloatArray:
        """One-sided p-values for a loss, in the shape of the leading axes."""
        return paired_pvalue(self.ours, self.theirs, bystanders=self.bystanders)

    def pairing(self) -> Pairing:
        """Losses and gains in items, for arrays without leading axes."""
        least = 0.5 / self.per_unit * (1.0 / len(self.ours) + 1.0 / len(self.theirs))
        losses, gains, effect = pair_means(self.our_rate(), self.their_rate(), least)
        return Pairing(self.ours.shape[-1], float(losses), float(gains), float(effect))

    def our_rate(self) -> FloatArray:
        """Share of right answers per item, candidate."""
        return np.asarray(self.ours.mean(axis=-2) / self.per_unit)

    def their_rate(self) -> FloatArray:
        """Share of right answers per item, what it is compared with."""
        return np.asarray(self.theirs.mean(axis=-2) / self.per_unit)


def hypotheses(arms: Answers, baseline: Answers, mtp: Sequence[str]) -> list[Hypothesis]:
    """The family; see `accuracy_family`. Arrays have shape (..., units, items)."""
    ours, theirs = _right(arms), _right(baseline)
    found = [
        Hypothesis(name, "baseline", answers, baseline[name], 1, _others(ours, theirs, [name]))
        for name, answers in arms.items()
        if name in baseline
    ]
    found += [
        Hypothesis(name, "eager", answers, arms[EAGER], 1, _accepted(theirs, name))
        for name, answers in arms.items()
        if name != EAGER and EAGER in arms
    ]
    speculating = [name for name in arms if name in mtp]
    plain = [name for name in arms if name not in mtp]
    if len(speculating) < 2:
        return found
    if _poolable(arms, speculating) and _poolable(baseline, speculating):
        summed = _summed(arms, speculating), _summed(baseline, speculating)
        others = _others(ours, theirs, speculating)
        found.append(Hypothesis(POOLED, "baseline", *summed, len(speculating), others))
    if plain:
        stacked = _stacked(arms, speculating), _stacked(arms, plain)
        found.append(Hypothesis(POOLED, "plain", *stacked, 1, None))
    return found


def family_pvalues(
    arms: Answers, baseline: Answers, mtp: Sequence[str]
) -> dict[tuple[str, Against], FloatArray]:
    """Unadjusted p-values of the family, keyed by (arm, against), in the leading axes' shape."""
    return {(h.arm, h.against): h.pvalue() for h in hypotheses(arms, baseline, mtp)}


def _right(answers: Answers) -> Right:
    """Right answers per item (..., items) and how many answers there were, by arm."""
    return {name: (units.sum(axis=-2), units.shape[-2]) for name, units in answers.items()}


def _others(ours: Right, theirs: Right, tested: Sequence[str]) -> Bystanders | None:
    """The arms not under test, of this run and of the baseline's runs."""
    names = [name for name in ours if name not in tested and name in theirs]
    if not names:
        return None
    return Bystanders(*_total(ours, names), *_total(theirs, names))


def _total(right: Right, names: Sequence[str]) -> tuple[IntArray, int]:
    total = right[names[0]][0]
    for name in names[1:]:
        total = total + right[name][0]
    return total, sum(right[name][1] for name in names)


def _accepted(theirs: Right, name: str) -> Bystanders | None:
    """The baseline's answers of an arm and of eager, for the comparison of the two in one run.

    Other arms stay out: if some of them answer as eager does, bit by bit, they are no bystanders.
    """
    if name not in theirs or EAGER not in theirs:
        return None
    return Bystanders(*theirs[name], *theirs[EAGER])


def _poolable(answers: Answers, names: Sequence[str]) -> bool:
    if any(name not in answers for name in names):
        return False
    return len({answers[name].shape for name in names}) == 1


def _summed(answers: Answers, names: Sequence[str]) -> IntArray:
    total: IntArray = np.sum([answers[name] for name in names], axis=0, dtype=np.int64)
    return total


def _stacked(answers: Answers, names: Sequence[str]) -> IntArray:
    return np.concatenate([answers[name] for name in names], axis=-2)
