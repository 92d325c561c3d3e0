"""Power, early abort and wall ratios."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evalsuite.stats import (
    detectable_drop,
    mcnemar,
    mcnemar_power,
    paired_pvalue,
    ratio_interval,
    smallest_detectable_drop,
    stop_probability,
    stopping_look,
    stopping_rule,
)

# Drops in points found with 80 % and 95 % power by the exact paired test at n = 1319, in steps of
# 0.05: published for alpha and flip rates with the drop inside the flip rate.
PUBLISHED = {
    0.05: {0.015: (0.90, 1.1), 0.027: (1.20, 1.5), 0.04: (1.45, 1.85), 0.066: (1.85, 2.4)},
    0.01: {0.015: (1.10, 1.3), 0.027: (1.50, 1.8), 0.04: (1.80, 2.2), 0.066: (2.30, 2.85)},
    0.001: {0.015: (1.3, 1.45), 0.027: (1.8, 2.1), 0.04: (2.2, 2.55), 0.066: (2.85, 3.35)},
}


@pytest.mark.parametrize("alpha", PUBLISHED)
def test_detectable_drops_match_the_published_table(alpha):
    for flips, drops in PUBLISHED[alpha].items():
        for power, published in zip((0.8, 0.95), drops, strict=True):
            found = 100 * smallest_detectable_drop(1319, flips, alpha, power, model="within")
            assert published - 0.065 < found <= published + 0.01


def test_power_is_that_of_the_test_by_simulation():
    rng = np.random.default_rng(1)
    table = rng.multinomial(1319, [0.0135 + 0.015, 0.0135, 1 - 0.042], size=40_000)
    simulated = (mcnemar(table[:, 0], table[:, 1]) <= 0.01).mean()
    assert mcnemar_power(1319, 0.0285, 0.0135, 0.01) == pytest.approx(simulated, abs=0.008)


def test_power_at_the_edges():
    assert mcnemar_power(1319, 0.0, 0.0, 0.01) == 0.0
    assert mcnemar_power(6, 1.0, 0.0, 0.01) == 0.0
    assert mcnemar_power(7, 1.0, 0.0, 0.01) == pytest.approx(1.0)
    assert smallest_detectable_drop(5, 0.0, 0.01) == 1.0
    with pytest.raises(ValueError, match="no such test"):
        mcnemar_power(10, 0.8, 0.4, 0.01)
    with pytest.raises(ValueError, match="out of range"):
        smallest_detectable_drop(10, -0.1, 0.01)


def test_smallest_drop_has_the_asked_power():
    drop = smallest_detectable_drop(1319, 0.027, 0.01, 0.9)
    assert mcnemar_power(1319, 0.0135 + drop, 0.0135, 0.01) == pytest.approx(0.9, abs=2e-3)
    assert smallest_detectable_drop(1319, 0.027, 0.01, design_effect=0.5) < 0.8 * drop


@pytest.mark.parametrize("runs", [1, 3])
def test_stated_drop_is_found_by_the_weighted_test(runs):
    """The statement may be cautious by a third, never bold: its power is at least 80 %."""
    rng = np.random.default_rng(2)
    q = rng.beta(0.18, 0.018, (400, 1, 1319))
    units = rng.random((400, runs + 1, 1319)) < q
    stated = detectable_drop(units[0, 0], units[0, 1:].mean(axis=0), alpha=0.001, power=0.8)

    def power(drop):
        kept = units[:, :1] & (rng.random((400, 1, 1319)) >= drop / 0.91)
        return (paired_pvalue(kept, units[:, 1:]) <= 0.001).mean()

    assert power(stated) >= 0.76
    assert power(0.66 * stated) < 0.8


def test_abort_limits_are_the_largest_below_the_level():
    rule = stopping_rule(0.91)
    for look in rule:
        assert stats.binom.cdf(look.stop_at, look.items, 0.91) < 1e-6
        assert stats.binom.cdf(look.stop_at + 1, look.items, 0.91) >= 1e-6
    assert stats.binom.cdf(16, 32, 0.91) == pytest.approx(2.7e-9, rel=0.05)
    assert stats.binom.cdf(40, 64, 0.91) == pytest.approx(5e-10, rel=0.1)
    assert stop_probability(rule, 0.91) < 2e-6
    assert stop_probability(rule, 0.0) == 1.0


def test_stop_probability_by_enumeration():
    rule = stopping_rule(0.7, looks=(4, 7), level=0.05)
    runs = np.array(np.meshgrid(*[[0, 1]] * 7)).reshape(7, -1).T
    chance = np.prod(np.where(runs == 1, 0.6, 0.4), axis=1)
    stopped = [stopping_look(list(map(bool, run)), rule) is not None for run in runs]
    assert stop_probability(rule, 0.6) == pytest.approx(float(chance[stopped].sum()))


def test_abort_waits_for_the_look_and_can_be_impossible():
    rule = stopping_rule(0.91)
    assert stopping_look([False] * 31, rule) is None
    assert stopping_look([False] * 32, rule) == rule[0]
    assert stopping_look([True] * 32 + [False] * 32, rule) == rule[1]
    assert [look.stop_at for look in stopping_rule(0.02)] == [-1, -1]
    assert stop_probability(stopping_rule(0.02), 0.0) == 0.0
    with pytest.raises(ValueError, match="increase"):
        stopping_rule(0.9, looks=(64, 32))
    with pytest.raises(ValueError, match="out of range"):
        stopping_rule(1.2)


def test_ratio_interval_covers():
    rng = np.random.default_rng(3)
    hits = 0
    for repeat in range(400):
        load = rng.lognormal(0.0, 0.5, 24)
        top = 0.5 * load * rng.lognormal(0.0, 0.1, 24)
        found = ratio_interval(top, load * rng.lognormal(0.0, 0.1, 24), seed=repeat, resamples=600)
        hits += found.low <= 0.5 <= found.high
    assert 0.90 < hits / 400 < 0.98


def test_ratio_interval_is_reproducible_and_pairs_blocks():
    slow = np.array([1.0, 50.0, 2.0, 9.0])
    found = ratio_interval(0.8 * slow, slow, seed=1)
    assert found[:3] == pytest.approx((0.8, 0.8, 0.8))
    noisy = np.array([1.0, 2.0, 1.5])
    assert ratio_interval(noisy, noisy[::-1], seed=2) == ratio_interval(noisy, noisy[::-1], seed=2)


@pytest.mark.parametrize(
    ("top", "bottom"),
    [([1.0], [1.0]), ([1.0, 2.0], [1.0]), ([1.0, 0.0], [1.0, 1.0]), ([1.0, np.nan], [1.0, 1.0])],
)
def test_bad_block_times_are_refused(top, bottom):
    with pytest.raises(ValueError, match="block"):
        ratio_interval(top, bottom, seed=0)
