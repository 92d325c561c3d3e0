"""The accuracy decision over all arms of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy.typing as npt

from evalsuite.stats.exchange import flip_weights
from evalsuite.stats.hypotheses import POOLED, Against, Hypothesis, hypotheses
from evalsuite.stats.paired import Pairing, drop_upper_bound
from evalsuite.stats.power import detectable_drop
from evalsuite.stats.proportions import IntArray, binary_answers, holm


@dataclass(frozen=True, slots=True)
class AccuracyRule:
    """Levels of the accuracy decision; `margin` and `hard_drop` are proportions."""

    fail_level: float = 0.01
    warn_level: float = 0.05
    margin: float = 0.015
    margin_level: float = 0.95
    hard_drop: float = 0.05
    hard_drop_items: int = 200
    power: float = 0.8


@dataclass(frozen=True, slots=True)
class AccuracyTest:
    """One hypothesis of the family: `arm` (or `mtp*`, the MTP arms pooled) lost nothing.

    `against` is the baseline, eager of the same run, or (pooled only) all arms of the same run that
    do not speculate. `p_holm` is adjusted over the family.
    """

    arm: str
    against: Against
    pairing: Pairing
    p: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class Margin:
    """Non-inferiority of one arm: `shown` when the upper bound of its drop is below the margin."""

    arm: str
    against: Against
    drop: float
    upper: float
    shown: bool


@dataclass(frozen=True, slots=True)
class AccuracyDecision:
    """What the answers say. `detectable` is the smallest drop of one arm and of all MTP arms
    (key `mtp*`) that this run could have found, by arm; `hard_drops` names arms beyond the limit.
    """

    n: int
    tests: tuple[AccuracyTest, ...]
    margins: tuple[Margin, ...]
    hard_drops: tuple[str, ...]
    detectable: Mapping[str, float]
    rule: AccuracyRule

    @property
    def failed(self) -> tuple[AccuracyTest, ...]:
        """Tests that reject at the family-wise fail level."""
        return tuple(test for test in self.tests if test.p_holm <= self.rule.fail_level)

    @property
    def warned(self) -> tuple[AccuracyTest, ...]:
        """Tests that reject at the warn level only."""
        low, high = self.rule.fail_level, self.rule.warn_level
        return tuple(test for test in self.tests if low < test.p_holm <= high)

    @property
    def status(self) -> Literal["pass", "warn", "fail"]:
        """`fail` for a test at the fail level or a hard drop, else `warn`, else `pass`."""
        if self.failed or self.hard_drops:
            return "fail"
        return "warn" if self.warned else "pass"


def accuracy_family(
    arms: Mapping[str, npt.ArrayLike],
    baseline: Mapping[str, npt.ArrayLike],
    mtp: Sequence[str],
    rule: AccuracyRule | None = None,
) -> AccuracyDecision:
    """Decide on the correctness of all arms of one run.

    `arms[name]` has shape (repeats, items), `baseline[name]` (accepted runs x repeats, items), 0 or
    1, all over the same items in the same order; `baseline` may be empty (arms are then judged
    against each other) or lack arms. `mtp` names the arms that speculate.

    Hypotheses, Holm over all of them: every arm against its own baseline; every arm but eager
    against eager of this run; the MTP arms together against their baseline; the MTP arms together
    against the arms of this run that do not speculate.

    Why these. A baseline of several runs holds, per item, a rate and not one answer; averaging R
    answers takes the variance of a difference from 2q(1-q) to (1 + 1/R)q(1-q), which no majority
    vote keeps. An arm is held against its own baseline and not against all arms', because a
    deterministic engine repeats its rounding, so that a lucky arm would be accused again in every
    run; the other arms say how steady an item is (see `Bystanders`), and a loss on a steady item
    weighs more. The pooled test keeps the arms of one run together as one unit per item, so any
    correlation among them is allowed. Flips that all arms of a run share (another machine, another
    library) blind the comparison with the baseline and cancel against the arms of the same run:
    hence the second pooled test. All are one-sided; see `paired_pvalue` for their validity.

    Raises ValueError for shapes that differ, values other than 0 and 1, or no arm.
    """
    rule = rule or AccuracyRule()
    ours = {name: binary_answers(values, name) for name, values in arms.items()}
    theirs = {name: binary_answers(values, f"baseline {name}") for name, values in baseline.items()}
    n = _common_items([*ours.values(), *theirs.values()])
    family = hypotheses(ours, theirs, mtp)
    pvalues = [float(hypothesis.pvalue()) for hypothesis in family]
    tests = tuple(
        AccuracyTest(h.arm, h.against, h.pairing(), p, float(adjusted))
        for h, p, adjusted in zip(family, pvalues, holm(pvalues), strict=True)
    )
    return AccuracyDecision(
        n=n,
        tests=tests,
        margins=tuple(_margin(test, rule) for test in _primary(tests)),
        hard_drops=_hard_drops(tests, n, rule),
        detectable=_detectable(family, rule),
        rule=rule,
    )


def _common_items(arrays: Sequence[IntArray]) -> int:
    sizes: set[int] = {array.shape[-1] for array in arrays}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"arms need the same items, got {sorted(sizes)}")
    return sizes.pop()


def _primary(tests: Sequence[AccuracyTest]) -> list[AccuracyTest]:
    """One comparison per arm: with the baseline, or with eager where there is no baseline."""
    chosen: dict[str, AccuracyTest] = {}
    for test in tests:
        if test.arm != POOLED and test.against == "baseline":
            chosen[test.arm] = test
    for test in tests:
        if test.arm != POOLED:
            chosen.setdefault(test.arm, test)
    return list(chosen.values())


def _margin(test: AccuracyTest, rule: AccuracyRule) -> Margin:
    found = test.pairing
    upper = float(
        drop_upper_bound(found.losses, found.gains, found.n, rule.margin_level, found.design_effect)
    )
    return Margin(test.arm, test.against, found.drop, upper, upper < rule.margin)


def _hard_drops(tests: Sequence[AccuracyTest], n: int, rule: AccuracyRule) -> tuple[str, ...]:
    if n < rule.hard_drop_items:
        return ()
    beyond = [test.arm for test in _primary(tests) if test.pairing.drop > rule.hard_drop]
    return tuple(beyond)


def _detectable(family: Sequence[Hypothesis], rule: AccuracyRule) -> dict[str, float]:
    """Smallest detectable drops at the strictest Holm step, which one faulty arm has to pass."""
    found: dict[str, float] = {}
    for h in sorted(family, key=lambda h: h.against != "baseline"):
        drop = detectable_drop(
            h.our_rate(),
            h.their_rate(),
            alpha=rule.fail_level / len(family),
            power=rule.power,
            weights=flip_weights(h.bystanders, h.ours)[0],
        )
        found[h.arm] = min(found.get(h.arm, 1.0), drop)
    return found
