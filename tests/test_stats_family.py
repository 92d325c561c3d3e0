"""The accuracy decision: what it finds, what it leaves alone, and how often it errs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsuite.stats import POOLED, AccuracyRule, accuracy_family

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
from power_model import ARMS, MTP, Draws, Model, draw, judge


def one_set(part: Draws, index: int, arms: np.ndarray | None = None):
    answers = part.arms if arms is None else arms
    run = {name: answers[index, k] for k, name in enumerate(ARMS)}
    return run, {name: part.baseline[index, :, k] for k, name in enumerate(ARMS)}


def keys(tests):
    return {(test.arm, test.against) for test in tests}


@pytest.fixture(scope="module")
def healthy() -> Draws:
    return draw(Model(), 40, np.random.default_rng(11))


def test_family_holds_every_comparison_once(healthy):
    run, baseline = one_set(healthy, 0)
    decision = accuracy_family(run, baseline, MTP)
    expected = {(name, "baseline") for name in ARMS} | {(name, "eager") for name in ARMS[1:]}
    assert keys(decision.tests) == expected | {(POOLED, "baseline"), (POOLED, "plain")}
    assert [margin.arm for margin in decision.margins] == list(ARMS)
    assert decision.status == "pass"
    assert 0.005 < decision.detectable["mtp3"] < 0.02


def test_identical_answers_pass_with_the_margin_shown():
    run = {name: np.arange(1319) % 10 != 0 for name in ARMS}
    decision = accuracy_family(run, run, MTP)
    assert {test.p for test in decision.tests} == {1.0}
    assert all(margin.shown for margin in decision.margins)
    assert decision.detectable["eager"] == pytest.approx(0.011, abs=0.002)


def test_drop_in_one_arm_is_found_and_named(healthy):
    arms, _ = healthy.with_fault("one", 0.03)
    for index in range(5):
        decision = accuracy_family(*one_set(healthy, index, arms), MTP)
        assert decision.status == "fail"
        assert ("mtp3", "baseline") in keys(decision.failed)
        assert all(test.arm in ("mtp3", POOLED) for test in decision.failed)


def test_drop_in_all_mtp_arms_is_found_by_the_pooled_test(healthy):
    arms, _ = healthy.with_fault("mtp", 0.012)
    found = [accuracy_family(*one_set(healthy, i, arms), MTP) for i in range(10)]
    assert all((POOLED, "baseline") in keys(decision.failed) for decision in found)


def test_without_baseline_arms_are_judged_against_each_other(healthy):
    arms, _ = healthy.with_fault("one", 0.04)
    run, _ = one_set(healthy, 0, arms)
    decision = accuracy_family(run, {}, MTP)
    assert ("mtp3", "eager") in keys(decision.failed)
    assert {margin.against for margin in decision.margins} == {"eager"}
    alone = accuracy_family({"eager": run["eager"]}, {}, MTP)
    assert (alone.tests, alone.status, alone.detectable) == ((), "pass", {})


def test_gains_are_no_fault(healthy):
    run, baseline = one_set(healthy, 0)
    right = {name: np.ones_like(answers) for name, answers in run.items()}
    assert accuracy_family(right, baseline, MTP).status == "pass"


def test_hard_drop_needs_enough_items():
    items = np.arange(300)
    baseline = {"eager": items % 100 < 91}
    run = {"eager": (items % 100 < 91) & (items % 17 != 0)}
    loose = AccuracyRule(fail_level=1e-9, warn_level=1e-9)
    assert accuracy_family(run, baseline, (), loose).hard_drops == ("eager",)
    run, baseline = ({k: v[:199] for k, v in d.items()} for d in (run, baseline))
    assert accuracy_family(run, baseline, (), loose).hard_drops == ()


def test_warning_lies_between_the_levels():
    """Holm leaves 9 losses of 9 in one of two arms at 2 * 3 tests * 2^-9."""
    right = np.ones(100, dtype=int)
    worse = right.copy()
    worse[:8] = 0
    decision = accuracy_family({"eager": right, "graph": worse}, {"graph": right}, ())
    assert decision.status == "fail"
    worse[7] = 1
    decision = accuracy_family({"eager": right, "graph": worse}, {"graph": right}, ())
    assert (decision.status, len(decision.warned)) == ("warn", 2)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 39), st.randoms(use_true_random=False))
def test_order_of_items_and_arms_does_not_matter(healthy, index, random):
    run, baseline = one_set(healthy, index)
    order = list(range(1319))
    random.shuffle(order)
    names = list(ARMS)
    random.shuffle(names)
    first = {(t.arm, t.against): t.p for t in accuracy_family(run, baseline, MTP).tests}
    second = accuracy_family(
        {name: run[name][order] for name in names},
        {name: baseline[name][:, order] for name in names},
        MTP,
    )
    for test in second.tests:
        assert test.p == pytest.approx(first[test.arm, test.against], abs=1e-10)


@pytest.mark.parametrize(
    ("run", "baseline", "message"),
    [
        ({"eager": [1, 0]}, {"eager": [1, 0, 1]}, "same items"),
        ({"eager": [1, 2]}, {}, "only 0 and 1"),
        ({"eager": [1.0, float("nan")]}, {}, "only 0 and 1"),
        ({}, {}, "same items"),
        ({"eager": []}, {}, "same items"),
    ],
)
def test_bad_arrays_are_refused(run, baseline, message):
    with pytest.raises(ValueError, match=message):
        accuracy_family(run, baseline, ())


def test_batched_rule_of_the_benchmark_is_this_decision(healthy):
    arms, retry = healthy.with_fault("one", 0.011)
    red = judge(arms, healthy.baseline, retry)
    single = [accuracy_family(*one_set(healthy, i, arms), MTP).status == "fail" for i in range(40)]
    assert red.tolist() == single
    assert 5 < sum(single) < 38


@pytest.mark.parametrize("model", [Model(), Model(shared=1.0), Model(copies=True, shared=1.0)])
def test_healthy_runs_rarely_fail(model):
    """At most 1 % of healthy runs may fail; 600 runs allow 12 of them at 3 standard errors."""
    part = draw(model, 600, np.random.default_rng(12))
    assert judge(part.arms, part.baseline, part.retry).sum() <= 12
