"""Single proportions, Holm, McNemar and Tango against published figures and definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from evalsuite.stats import (
    clopper_pearson,
    drop_interval,
    drop_upper_bound,
    flip_rate,
    holm,
    mcnemar,
    pair,
    tango_score,
    wilson,
)


@pytest.mark.parametrize(
    ("correct", "n", "score", "exact"),
    [
        # Newcombe 1998, Statistics in Medicine 17:857-872, table I, methods 3 and 5.
        (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
        (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
        (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
        (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
    ],
)
def test_intervals_of_a_proportion_match_newcombe(correct, n, score, exact):
    assert wilson(correct, n) == pytest.approx(score, abs=6e-5)
    assert clopper_pearson(correct, n) == pytest.approx(exact, abs=6e-5)


@pytest.mark.parametrize(("correct", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_no_proportion_is_refused(correct, n):
    with pytest.raises(ValueError, match="no proportion"):
        wilson(correct, n)


def test_flip_rate_counts_pairs_of_runs():
    answers = [[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 0]]
    pairs = [(0, 1), (0, 2), (1, 2)]
    rows = np.array(answers)
    expected = np.mean([(rows[a] != rows[b]).mean() for a, b in pairs])
    assert flip_rate(answers) == pytest.approx(expected)
    with pytest.raises(ValueError, match="two runs"):
        flip_rate([[1, 0]])
    with pytest.raises(ValueError, match="only 0 and 1"):
        flip_rate([[1, 2], [0, 1]])


def test_holm_follows_its_definition():
    # 0.01*4, 0.02*3 -> 0.06, max(0.06, 0.03*2), 0.04 -> 0.06
    assert holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([[0.5, 0.9]]) == pytest.approx(np.array([[1.0, 1.0]]))
    with pytest.raises(ValueError, match="NaN"):
        holm([0.1, math.nan])


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8), st.floats(0.001, 0.5))
def test_holm_rejects_what_the_step_down_procedure_rejects(pvalues, alpha):
    rejected = set()
    for step, index in enumerate(np.argsort(pvalues, kind="stable")):
        if pvalues[index] * (len(pvalues) - step) > alpha:
            break
        rejected.add(int(index))
    assert set(np.flatnonzero(holm(pvalues) <= alpha).tolist()) == rejected


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_test(losses, gains):
    m = losses + gains
    if m == 0:
        assert mcnemar(0, 0) == 1.0
        return
    less = stats.binomtest(losses, m, 0.5, alternative="greater").pvalue
    assert mcnemar(losses, gains) == pytest.approx(less)
    both = stats.binomtest(losses, m, 0.5).pvalue
    assert mcnemar(losses, gains, "two-sided") == pytest.approx(both)
    half = 0.5 * stats.binom.pmf(losses, m, 0.5)
    assert mcnemar(losses, gains, mid_p=True) == pytest.approx(less - half)


def test_mcnemar_published_example():
    # Fagerland, Lydersen and Laake 2013, BMC Med. Res. Methodol. 13:91: airway
    # hyper-responsiveness, 1 against 7 discordant pairs: exact 0.0703, mid-p 0.0391 (two-sided).
    assert mcnemar(7, 1, "two-sided") == pytest.approx(0.0703, abs=5e-5)
    assert mcnemar(7, 1, "two-sided", mid_p=True) == pytest.approx(0.0391, abs=5e-5)
    with pytest.raises(ValueError, match="negative"):
        mcnemar(-1, 2)


@pytest.mark.parametrize(
    ("losses", "gains", "n", "level", "interval"),
    [
        # Figures of the R package PropCIs, function scoreci.mp (its sign is gains - losses).
        (28, 25, 618, 0.90, (-0.0148, 0.0247)),
        (48, 41, 549, 0.90, (-0.0157, 0.0414)),
        # Fagerland, Lydersen and Laake 2014, Statistics in Medicine 33:2850-2875 (Bentur's data).
        (1, 7, 21, 0.95, (-0.517, -0.026)),
        # Tango 1998, table III: soft contact lenses, one discordant pair of 44.
        (1, 0, 44, 0.95, (-0.059, 0.118)),
    ],
)
def test_tango_interval_matches_published_figures(losses, gains, n, level, interval):
    assert drop_interval(losses, gains, n, level) == pytest.approx(interval, abs=6e-4)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 400), st.integers(-60, 60))
def test_tango_score_uses_the_constrained_maximum_likelihood(losses, gains, ties, percent):
    n, drop = losses + gains + ties, percent / 100

    def minus_log_likelihood(q):
        cells = [(losses, q + drop), (gains, q), (ties, 1.0 - 2.0 * q - drop)]
        return -sum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

    low, high = max(0.0, -drop), (1.0 - drop) / 2.0
    if losses + gains == 0 and drop == 0.0:
        assert tango_score(*(np.float64(x) for x in (0, 0, n, 0))) == 0.0
        return
    best = optimize.minimize_scalar(
        minus_log_likelihood, bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    ).x
    variance = n * (2.0 * best + drop - drop * drop)
    expected = (losses - gains - n * drop) / math.sqrt(variance)
    found = float(tango_score(*(np.float64(x) for x in (losses, gains, n, drop))))
    assert found == pytest.approx(expected, rel=2e-3, abs=2e-3)


def test_upper_bound_solves_the_score_equation_and_mirrors():
    upper = float(drop_upper_bound(13, 3, 400, 0.95))
    score = float(tango_score(*(np.float64(x) for x in (13, 3, 400, upper))))
    assert score == pytest.approx(-stats.norm.isf(0.05), abs=1e-9)
    low, high = drop_interval(13, 3, 400)
    assert drop_interval(3, 13, 400) == pytest.approx((-high, -low))


def test_upper_bound_without_discordant_items():
    z2 = stats.norm.isf(0.05) ** 2
    assert drop_upper_bound(0, 0, 1319) == pytest.approx(z2 / (1319 + z2), abs=1e-9)
    assert 0.1 < float(drop_upper_bound(0, 0, 20)) < 0.2


def test_design_effect_narrows_as_the_variance_says():
    whole = float(drop_upper_bound(20, 20, 1319))
    half = float(drop_upper_bound(20, 20, 1319, design_effect=0.5))
    assert half / whole == pytest.approx(math.sqrt(0.5), rel=0.02)


@pytest.mark.parametrize(("losses", "gains", "n"), [(3, 3, 5), (-1, 0, 5), (0, 0, 0)])
def test_counts_that_do_not_fit_are_refused(losses, gains, n):
    with pytest.raises(ValueError, match="counts"):
        drop_upper_bound(losses, gains, n)


def test_upper_bound_covers_by_simulation():
    """At a true drop of the margin, at most 5 % (2.8 standard errors added) are called within."""
    rng = np.random.default_rng(5)
    sets = 20_000
    for flips, drop in ((0.027, 0.015), (0.001, 0.015), (0.027, 0.0), (0.066, 0.03)):
        table = rng.multinomial(1319, [flips / 2 + drop, flips / 2, 1 - flips - drop], size=sets)
        missed = (drop_upper_bound(table[:, 0], table[:, 1], 1319) < drop).mean()
        assert missed < 0.05 + 2.8 * math.sqrt(0.05 * 0.95 / sets) + 0.004


def test_pair_with_several_answers():
    baseline = [[1, 1, 0, 1], [1, 0, 0, 1]]
    candidate = [[1, 0, 0, 0]]
    found = pair(candidate, baseline)
    assert (found.n, found.losses, found.gains) == (4, 1.5, 0.0)
    assert found.drop == pytest.approx(1.5 / 4)
    assert found.design_effect == pytest.approx((0.25 + 1.0) / 1.5)
    copies = pair(candidate, [baseline[0]] * 3)
    assert copies == pair(candidate, baseline[0])
    assert copies.design_effect == 1.0
    with pytest.raises(ValueError, match="paired"):
        pair([[1, 0]], [[1, 0, 1]])
    with pytest.raises(ValueError, match="only 0 and 1"):
        pair([[0.5]], [[1]])
