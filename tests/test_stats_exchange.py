"""The lattice tests against brute force, McNemar, and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evalsuite.stats import (
    P_FLOOR,
    Bystanders,
    exchange_pvalue,
    mcnemar,
    paired_pvalue,
    sign_flip_pvalue,
)
from evalsuite.stats.exchange import steadiness

SIZES = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 4))


def brute_exchange(candidate, baseline, weights):
    drawn, units = len(candidate), np.concatenate([candidate, baseline])
    sums = [
        [w * sum(choice) for choice in itertools.combinations(column, drawn)]
        for column, w in zip(units.T, weights, strict=True)
    ]
    observed = int((weights * candidate.sum(axis=0)).sum())
    outcomes = [sum(case) for case in itertools.product(*sums)]
    return np.mean([outcome <= observed for outcome in outcomes])


def brute_flip(candidate, baseline, weights):
    d = len(baseline) * candidate.sum(axis=0) - len(candidate) * baseline.sum(axis=0)
    d = d * weights
    signs = itertools.product((-1, 1), repeat=len(d))
    return np.mean([(np.array(s) * d).sum() <= d.sum() for s in signs])


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(1, 3), st.integers(0, 2**32 - 1), st.booleans())
def test_both_tests_equal_full_enumeration(sizes, top, seed, weighted):
    ours, theirs, items = sizes
    rng = np.random.default_rng(seed)
    candidate = rng.integers(0, top + 1, (ours, items))
    baseline = rng.integers(0, top + 1, (theirs, items))
    by = None
    exchange_weights = flip_weights = np.ones(items, dtype=int)
    if weighted:
        by = Bystanders(rng.integers(0, 3, items), 2, rng.integers(0, 5, items), 4)
        exchange_weights = steadiness((by.ours + by.theirs) / 6, 6)
        flip_weights = steadiness(0.5 * (by.ours / 2 + by.theirs / 4), 6)
    assert float(exchange_pvalue(candidate, baseline, bystanders=by)) == pytest.approx(
        brute_exchange(candidate, baseline, exchange_weights)
    )
    assert float(sign_flip_pvalue(candidate, baseline, bystanders=by)) == pytest.approx(
        brute_flip(candidate, baseline, flip_weights)
    )


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 30))
def test_one_answer_each_is_mcnemar(losses, gains, ties):
    candidate = np.array([[0] * losses + [1] * gains + [1] * (ties + 1)])
    baseline = np.array([[1] * losses + [0] * gains + [1] * (ties + 1)])
    expected = max(float(mcnemar(losses, gains)), P_FLOOR)
    for test in (exchange_pvalue, sign_flip_pvalue, paired_pvalue):
        assert float(test(candidate, baseline)) == pytest.approx(expected, abs=1e-12)
    greater = max(float(mcnemar(losses, gains, "greater")), P_FLOOR)
    assert float(paired_pvalue(candidate, baseline, "greater")) == pytest.approx(greater, abs=1e-12)


def test_one_against_three_is_the_matched_set_test():
    """Only totals count: a sum of binomials, here by convolution."""
    rng = np.random.default_rng(3)
    units = rng.random((4, 400)) < 0.8
    totals = units.sum(axis=0)
    pmf = np.ones(1)
    for t in (1, 2, 3):
        count = int((totals == t).sum())
        pmf = np.convolve(pmf, stats.binom.pmf(np.arange(count + 1), count, t / 4))
    observed = int(units[0][(totals > 0) & (totals < 4)].sum())
    found = float(exchange_pvalue(units[:1], units[1:]))
    assert found == pytest.approx(pmf[: observed + 1].sum())


def test_leading_axes_are_separate_data_sets():
    rng = np.random.default_rng(4)
    candidate, baseline = rng.random((2, 3, 1, 90)) < 0.9, rng.random((2, 3, 2, 90)) < 0.9
    by = Bystanders(*(rng.integers(0, 3, (2, 3, 90)) if i % 2 == 0 else 2 for i in range(4)))
    found = paired_pvalue(candidate, baseline, bystanders=by)
    assert found.shape == (2, 3)
    one = Bystanders(by.ours[1, 2], 2, by.theirs[1, 2], 2)
    assert found[1, 2] == pytest.approx(
        float(paired_pvalue(candidate[1, 2], baseline[1, 2], bystanders=one))
    )


def test_copies_of_the_baseline_are_one_witness():
    rng = np.random.default_rng(5)
    baseline = rng.random((1, 500)) < 0.9
    candidate = np.where(rng.random((1, 500)) < 0.05, ~baseline, baseline)
    single = float(paired_pvalue(candidate, baseline))
    copied = float(paired_pvalue(candidate, np.repeat(baseline, 3, axis=0)))
    assert copied == pytest.approx(single)


def test_a_loss_on_a_steady_item_weighs_more():
    baseline = np.ones((1, 30), dtype=int)
    candidate = baseline.copy()
    candidate[0, :4] = 0
    candidate[0, 4:10], baseline[0, 4:10] = 1, 0
    steady = np.full(30, 6)
    steady[4:10] = 3
    by = Bystanders(steady, 6, steady, 6)
    assert paired_pvalue(candidate, baseline) > 0.8
    assert paired_pvalue(candidate, baseline, bystanders=by) < 0.1
    assert steadiness(np.array([1.0, 0.5, 0.0]), 6).tolist() == [8, 2, 1]


def test_large_input_and_floor():
    baseline = np.ones((1, 60_000), dtype=int)
    assert float(paired_pvalue(1 - baseline, baseline)) == P_FLOOR
    assert float(paired_pvalue(baseline, baseline)) == 1.0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((1, 3), (1, 4)), ((3,), (1, 3)), ((0, 3), (1, 3)), ((2, 1, 3), (3, 1, 3))],
)
def test_shapes_that_do_not_fit_are_refused(ours, theirs):
    with pytest.raises(ValueError, match="units"):
        paired_pvalue(np.zeros(ours), np.zeros(theirs))
    with pytest.raises(ValueError, match="negative"):
        paired_pvalue(np.full((1, 3), -1), np.zeros((1, 3)))


@pytest.mark.parametrize("kind", ["independent", "copies", "shared"])
def test_false_alarms_stay_at_the_level(kind):
    """Skewed item rates, bystanders of the same runs; 3 standard errors are allowed."""
    rng = np.random.default_rng(6)
    sets, items, level = 3000, 400, 0.02
    q = rng.beta(0.4, 0.04, (sets, 1, items))
    units = rng.random((sets, 4, items)) < q
    others = units if kind == "shared" else rng.random((sets, 4, items)) < q
    if kind == "copies":
        units[:, 2:], others[:, 2:] = units[:, 1:2], others[:, 1:2]
    by = Bystanders(others[:, 0].astype(int), 1, others[:, 1:].sum(axis=1), 3)
    p = paired_pvalue(units[:, :1], units[:, 1:], bystanders=by)
    assert (p <= level).mean() < level + 3 * math.sqrt(level * (1 - level) / sets)
