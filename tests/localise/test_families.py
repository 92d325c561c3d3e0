"""The likeliest family from a failed run alone, and the reason that is given."""

from __future__ import annotations

from cases import ARMS, Case, accepts, drifts, long, part
from run_factory import change_json, change_records


def test_arms_that_replay_alone_are_wrong(case: Case) -> None:
    found = case.records(part, "graph", "mtp3")
    assert found.family == "F" and "only graph and mtp3, which replay graphs" in found.reason


def test_eager_is_wrong_too(case: Case) -> None:
    found = case.records(part, *ARMS)
    assert found.family == "G" and "every arm is wrong alike, eager too" in found.reason
    assert found.otherwise == ["C"] and found.places == []


def test_eager_is_wrong_and_others_in_their_own_way(case: Case) -> None:
    case.records(part, "eager", "graph")
    assert case.records(drifts(1), "eager-mtp3", "mtp3").family == "C"


def test_drafts_that_nobody_verifies(case: Case) -> None:
    found = case.records(
        lambda row: {**part(row), "accepted": row["drafted"]}, "eager-mtp3", "mtp3"
    )
    assert found.family == "S" and "every draft is accepted" in found.reason


def test_verification_rows_are_wrong_from_the_first(case: Case) -> None:
    names = ("eager-mtp3", "mtp3")
    for name in names:
        change_json(case.run / name / "evidence.json", accepts((0.1, 0.0, 0.0)))
    found = case.records(drifts(1, 2, 3), *names)
    assert (found.family, found.otherwise) == ("A", ["B"])
    assert "only width 4 is wrong, with and without graphs from the first" in found.reason


def test_verification_rows_drift_and_drafts_hold(case: Case) -> None:
    assert case.records(drifts(1), "eager-mtp3", "mtp3").family == "B"


def test_later_rows_alone_are_wrong(case: Case) -> None:
    case.both(long)
    found = case.records(drifts(2, 3, 4, 6), "eager-mtp3", "mtp3")
    assert found.family == "A" and "as if made for one row a request" in found.reason
    assert any(one.what.startswith("at no first row") for one in found.patterns)


def test_answers_part_late_and_acceptance_is_healthy(case: Case) -> None:
    case.both(long)
    assert case.records(drifts(17), "eager-mtp3", "mtp3").family == "D"


def test_only_answers_with_rejected_drafts_are_wrong(case: Case) -> None:
    def steady(row: dict) -> dict:
        return {**long(row), "accepted": row["drafted"] - 2 * (row["item_id"] < "8")}

    case.both(steady)
    found = case.records(
        lambda row: drifts(17)(row) if row["item_id"] < "8" else row, "eager-mtp3", "mtp3"
    )
    assert found.family == "D" and "where drafts are turned down" in found.reason


def test_acceptance_falls_and_answers_are_right(case: Case) -> None:
    found = case.evidence(accepts((0.6, 0.3, 0.1)), "eager-mtp3", "mtp3")
    assert (found.family, found.otherwise) == ("E", [])


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


def test_what_an_arm_did_before_it_was_stopped_tells_more_than_that_it_was(case: Case) -> None:
    kept = iter(range(10_000))
    change_records(case.run, "mtp3", lambda row: row if next(kept) < 20 else None)
    found = case.records(lambda row: part(drifts(1)(row)), "eager-mtp3", "mtp3")
    assert found.family == "B" and "completeness" in {f.check for f in case.judged().reasons()}


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
    found = case.records(drifts(0), "eager-mtp3", "mtp3")
    assert found.family == "D" and "before they begin" in found.reason


def test_right_answers_with_other_margins_are_no_fault_of_the_drafter(case: Case) -> None:
    for name in ("eager-mtp3", "mtp3"):
        change_json(case.run / name / "evidence.json", accepts((0.6, 0.3, 0.1)))
    found = case.records(drifts(1, 2, 3), "eager-mtp3", "mtp3")
    assert found.family != "E" and "E" not in found.otherwise


def test_a_pattern_of_pools_tells_of_the_indexer(case: Case) -> None:
    case.both(long)

    def at_pools(row: dict) -> dict:
        ends = [t for t in range(1, 24) if (row["prompt_tokens"] + t - 1) % 4 == 3]
        return drifts(*ends)(row)

    found = case.records(at_pools, "eager-mtp3", "mtp3")
    assert found.family == "C" and "at the last token of their pool of 4" in found.reason


def test_nothing_is_said_of_a_run_that_holds(case: Case) -> None:
    assert case.judged().localisation is None
