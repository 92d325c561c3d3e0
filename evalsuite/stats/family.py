"""The accuracy decision over all arms of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from evalsuite.stats.exchange import paired_pvalue
from evalsuite.stats.paired import Pairing, drop_upper_bound, pair
from evalsuite.stats.power import smallest_detectable_drop
from evalsuite.stats.proportions import FloatArray, IntArray, binary_answers, holm

Against = Literal["baseline", "eager", "plain"]
EAGER = "eager"
POOLED = "mtp*"


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
    run. The pooled test keeps the arms of one run together as one unit per item, so any
    correlation among them is allowed. Flips that all arms of a run share (another machine, another
    library) blind the comparison with the baseline and cancel against the arms of the same run:
    hence the second pooled test. All are one-sided; see `paired_pvalue` for their validity.

    Raises ValueError for shapes that differ, values other than 0 and 1, or no arm.
    """
    rule = rule or AccuracyRule()
    ours = {name: binary_answers(values, name) for name, values in arms.items()}
    theirs = {name: binary_answers(values, f"baseline {name}") for name, values in baseline.items()}
    n = _common_items([*ours.values(), *theirs.values()])
    pvalues = family_pvalues(ours, theirs, mtp)
    adjusted = holm([float(p) for p in pvalues.values()]) if pvalues else np.zeros(0)
    tests = tuple(
        AccuracyTest(arm, against, _pairing(ours, theirs, mtp, arm, against), float(p), float(q))
        for ((arm, against), p), q in zip(pvalues.items(), adjusted, strict=True)
    )
    return AccuracyDecision(
        n=n,
        tests=tests,
        margins=tuple(_margin(test, rule) for test in _primary(tests)),
        hard_drops=_hard_drops(tests, n, rule),
        detectable=_detectable(tests, rule),
        rule=rule,
    )


def family_pvalues(
    arms: Mapping[str, IntArray], baseline: Mapping[str, IntArray], mtp: Sequence[str]
) -> dict[tuple[str, Against], FloatArray]:
    """Unadjusted p-values of the family, keyed by (arm, against).

    Arrays have shape (..., units, items); leading axes are separate data sets (simulated runs), and
    every p-value has their shape. See `accuracy_family` for the hypotheses.
    """
    found: dict[tuple[str, Against], FloatArray] = {}
    for name, answers in arms.items():
        if name in baseline:
            found[name, "baseline"] = paired_pvalue(answers, baseline[name])
    for name, answers in arms.items():
        if name != EAGER and EAGER in arms:
            found[name, "eager"] = paired_pvalue(answers, arms[EAGER])
    speculating = [name for name in arms if name in mtp]
    plain = [name for name in arms if name not in mtp]
    if len(speculating) > 1:
        if _poolable(arms, speculating) and _poolable(baseline, speculating):
            found[POOLED, "baseline"] = paired_pvalue(
                _summed(arms, speculating), _summed(baseline, speculating)
            )
        if plain:
            found[POOLED, "plain"] = paired_pvalue(
                _stacked(arms, speculating), _stacked(arms, plain)
            )
    return found


def _poolable(answers: Mapping[str, IntArray], names: Sequence[str]) -> bool:
    if any(name not in answers for name in names):
        return False
    return len({answers[name].shape for name in names}) == 1


def _summed(answers: Mapping[str, IntArray], names: Sequence[str]) -> IntArray:
    total: IntArray = np.sum([answers[name] for name in names], axis=0, dtype=np.int64)
    return total


def _stacked(answers: Mapping[str, IntArray], names: Sequence[str]) -> IntArray:
    return np.concatenate([answers[name] for name in names], axis=-2)


def _pairing(
    arms: Mapping[str, IntArray],
    baseline: Mapping[str, IntArray],
    mtp: Sequence[str],
    arm: str,
    against: Against,
) -> Pairing:
    speculating = [name for name in arms if name in mtp]
    ours = _stacked(arms, speculating) if arm == POOLED else arms[arm]
    if against == "eager":
        return pair(ours, arms[EAGER])
    if against == "plain":
        return pair(ours, _stacked(arms, [name for name in arms if name not in mtp]))
    return pair(ours, _stacked(baseline, speculating) if arm == POOLED else baseline[arm])


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


def _detectable(tests: Sequence[AccuracyTest], rule: AccuracyRule) -> dict[str, float]:
    """Smallest detectable drops at the strictest Holm step, the level that one faulty arm meets."""
    if not tests:
        return {}
    alpha = rule.fail_level / len(tests)
    pooled = [test for test in tests if test.arm == POOLED and test.against == "baseline"]
    return {
        test.arm: smallest_detectable_drop(
            test.pairing.n,
            min((test.pairing.losses + test.pairing.gains) / test.pairing.n, 0.999),
            alpha,
            rule.power,
            design_effect=test.pairing.design_effect,
        )
        for test in [*_primary(tests), *pooled]
    }
