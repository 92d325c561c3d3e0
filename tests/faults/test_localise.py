"""From a failed run alone: the first parting of each arm, and the likeliest family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from run_factory import Change, Factory, arms, change_json, change_records

from evalsuite.baseline_choice import Chosen
from evalsuite.judge import verdict_on
from evalsuite.localise import Localisation, localise
from evalsuite.policy import Policy
from evalsuite.reference import from_run
from evalsuite.runload import load_run

ARMS = ("eager", "graph", "eager-mtp3", "mtp3")


class Case:
    """A healthy run, and one to break."""

    def __init__(self, folder: Path) -> None:
        factory = Factory.of(32, arms=arms(*ARMS))
        self.healthy = factory.make(folder / "healthy", 0)
        self.run = factory.make(folder / "run", 1)

    def records(self, change: Change, *names: str) -> Localisation:
        for name in names:
            change_records(self.run, name, change)
        return self.placed()

    def evidence(self, change: Change, *names: str) -> Localisation:
        for name in names:
            change_json(self.run / name / "evidence.json", change)
        return self.placed()

    def placed(self) -> Localisation:
        policy = Policy()
        run = load_run(self.run)
        reference = from_run(load_run(self.healthy), run.ids, policy.equality)
        verdict = verdict_on(run, Chosen(reference=reference), policy)
        assert verdict.verdict == "fail"
        return localise(run, reference, verdict)


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def part(row: dict) -> dict:
    """Another third token and another value."""
    return {**row, "token_ids": [5, 6, 99, 9], "text": " It is 5*5=<<5*5=25>>25.\n#### 987654"}


def accepts(rates: Sequence[float]) -> Change:
    """An arm whose drafts held so often."""
    return lambda row: {**row, "accepted_per_position": [int(4000 * rate) for rate in rates]}


def test_the_first_parting_is_told_with_its_place(case: Case) -> None:
    found = case.records(part, "mtp3")
    (parting,) = found.partings
    assert (parting.arm, parting.token, parting.position) == ("mtp3", 2, 42)
    assert parting.kind == "verify:4" and parting.agree == ("graph", "eager-mtp3")
    assert len(parting.neighbours) == 15
    assert "position 42 (2 of its pool of 4, 10 of its block of 16" in found.sentence


def test_arms_that_replay_alone_are_wrong(case: Case) -> None:
    assert case.records(part, "graph", "mtp3").family == "F"


def test_eager_is_wrong_too(case: Case) -> None:
    assert case.records(part, *ARMS).family == "C"


def test_verification_rows_are_wrong_from_the_first(case: Case) -> None:
    names = ("eager-mtp3", "mtp3")

    def change(row: dict) -> dict:
        return {**part(row), "margins": [3.0, 1.0, 2.0, 4.0]}

    for name in names:
        change_json(case.run / name / "evidence.json", accepts((0.1, 0.0, 0.0)))
    found = case.records(change, *names)
    assert found.family == "A" and "only widths 4 are wrong from their first rows" in found.sentence


def test_answers_part_late_and_acceptance_is_healthy(case: Case) -> None:
    assert case.records(part, "eager-mtp3", "mtp3").family == "D"


def test_acceptance_falls_and_answers_are_right(case: Case) -> None:
    assert case.evidence(accepts((0.6, 0.3, 0.1)), "eager-mtp3", "mtp3").family == "E"


def test_acceptance_falls_under_replay_alone(case: Case) -> None:
    assert case.evidence(accepts((0.6, 0.3, 0.1)), "mtp3").family == "F"


def test_rows_went_to_another_kernel(case: Case) -> None:
    routes = {"prefill": "dense", "verify:4": "rope_576"}
    assert case.evidence(lambda row: {**row, "routes": routes}, "mtp3").family == "A"


def test_the_arm_did_not_run_as_asked(case: Case) -> None:
    assert case.evidence(lambda row: {**row, "graph_replays": 0}, "mtp3").family == "S"


def test_records_are_missing(case: Case) -> None:
    dropped = iter([None, *range(31)])
    assert case.records(lambda row: None if next(dropped) is None else row, "mtp3").family == "S"


def test_texts_differ_while_ids_agree(case: Case) -> None:
    leak = "<|assistant|> "
    assert case.records(lambda row: {**row, "text": leak + row["text"]}, "mtp3").family == "H"


def test_repeated_tokens_and_their_kernel_are_told_first(case: Case) -> None:
    routes = {"prefill": "dense", "verify:4": "rope_576"}
    change_json(case.run / "mtp3" / "evidence.json", lambda row: {**row, "routes": routes})
    found = case.records(
        lambda row: {**row, "text": " the" * 60, "finish_reason": "length"}, "mtp3"
    )
    assert found.sentence.startswith(
        "repeated tokens, hardly an answer of mtp3 right, verify rows routed to rope_576: "
    )
    assert found.family == "A"


def test_margins_that_leave_eagers_before_the_first_token_tell_of_prefixes(case: Case) -> None:
    def change(row: dict) -> dict:
        return {**part(row), "margins": [3.5, *row["margins"][1:]]}

    found = case.records(change, "eager-mtp3", "mtp3")
    assert found.family == "D" and "before they begin" in found.sentence


def test_right_answers_with_other_margins_are_no_fault_of_the_drafter(case: Case) -> None:
    def drifting(row: dict) -> dict:
        return {**row, "margins": [row["margins"][0], *(m + 0.1 for m in row["margins"][1:])]}

    for name in ("eager-mtp3", "mtp3"):
        change_json(case.run / name / "evidence.json", accepts((0.6, 0.3, 0.1)))
    assert case.records(drifting, "eager-mtp3", "mtp3").family == "B"
