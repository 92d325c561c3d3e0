"""The fault that started this: verification rows at a kernel built for 576-wide rows.

With the rule as it was before the fix the gate is red within 32 items, in every arm that drafts and
in no other; with the rule as it is now the same run is green. And what faults must not do: those of
the drafter leave answers alone, and a wrong recurrent state leaves acceptance alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from evalsuite.baseline_choice import Chosen
from evalsuite.faults.bench import Bench
from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.fault import Fault
from evalsuite.faults.healthy import Variation, run_healthy
from evalsuite.faults.stress import NONE
from evalsuite.faults.trial import Trial, try_fault
from evalsuite.judge import verdict_on

LEAST_ACCURACY, SEVERAL = 0.7, 0.05


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), "cpu", 32)
    yield made
    made.close()


def tried(bench: Bench, fault: Fault, *arms: str) -> Trial:
    fault = replace(fault, arms=arms or fault.arms)
    trial = try_fault(bench, fault, bench.folder / f"{fault.id}-{'-'.join(fault.arms)}")
    assert trial.problem is None, trial.problem
    return trial


def test_before_the_fix_the_gate_is_red_and_after_it_green(bench: Bench) -> None:
    arms = ("eager", "eager-mtp1", "eager-mtp5")
    trial = tried(bench, FAULTS["A-01"], *arms)
    assert trial.items <= 32
    assert {"route", "equality", "accuracy"} <= set(trial.checks)
    assert trial.figures["eager"] == trial.healthy["eager"]
    assert trial.healthy["eager"]["accuracy"] > LEAST_ACCURACY
    for name in arms[1:]:
        assert trial.figures[name]["accuracy"] < 0.2
    assert trial.place is not None and trial.place.family == "A"
    told = trial.place.sentence
    assert told.startswith("hardly an answer of eager-mtp1 and eager-mtp5 right, ")
    assert "verify rows routed to rope_576" in told
    fixed = bench.healthy(NONE).view(arms, trial.items)
    assert verdict_on(fixed, Chosen(asked_none=True), bench.policy).verdict == "pass"


def test_a_healthy_run_in_another_order_and_batch_is_green(bench: Bench) -> None:
    varied = Variation("varied", order=5, batch=0.75, options=(("shuffle_seed", 5),))
    run = run_healthy(bench, varied, 8, ("eager", "eager-mtp1"), bench.folder / "varied")
    assert run.alarms == () and run.items == 8


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["A-08", *(name for name in FAULTS if name[0] == "E")])
def test_a_fault_of_the_drafter_leaves_answers_alone(bench: Bench, name: str) -> None:
    trial = tried(bench, FAULTS[name])
    for arm, figures in trial.figures.items():
        assert figures["accuracy"] == pytest.approx(trial.healthy[arm]["accuracy"], abs=0.07)
    assert set(trial.checks) <= {"acceptance"}
    assert trial.right


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wrong_state_leaves_acceptance_alone(bench: Bench) -> None:
    trial = tried(bench, FAULTS["D-07"])
    assert trial.caught and "acceptance" not in trial.checks
    assert {"equality", "accuracy"} & set(trial.checks)
    ours, theirs = (f["eager-mtp3"]["acceptance"] for f in (trial.figures, trial.healthy))
    assert all(abs(a - b) < SEVERAL for a, b in zip(ours, theirs, strict=True))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_accepting_everything_raises_acceptance_and_is_caught(bench: Bench) -> None:
    trial = tried(bench, FAULTS["S-11"])
    # A rate of 1.0 is beyond chance after a thousand drafts; answers are wrong long before.
    assert trial.caught
    assert trial.figures["eager-mtp3"]["acceptance"] == [1.0, 1.0, 1.0]
    assert trial.healthy["eager-mtp3"]["acceptance"][-1] < 1.0
