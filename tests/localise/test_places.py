"""Where an arm first leaves eager's: token, rows, boundaries, neighbours, and who agrees."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cases import Case, drifts, long, part
from run_factory import change_json, change_records

from evalsuite.judge import judge_run, read_verdict
from evalsuite.localise import Localisation
from evalsuite.localise.geometry import MINI_BLOCK
from evalsuite.mini.options import SessionOptions


def test_the_first_place_is_told_with_its_rows_and_boundaries(case: Case) -> None:
    found = case.records(part, "mtp3")
    (place,) = found.places
    assert (place.arm, place.token, place.moved, place.margin) == ("mtp3", 2, False, 2.0)
    assert (place.rows, place.row) == ("verify:4", None)
    assert (place.position, place.in_pool, place.in_block) == (41, 1, 9)
    assert place.behind_topk is False and place.agree == ["graph", "eager-mtp3"]
    assert len(place.neighbours) == 15 and place.item not in place.neighbours
    assert "position 41 (1 of its pool, 9 of its block, within the top-k)" in found.sentence
    assert any("counted by answer, not by step" in one for one in found.untold)


def test_margins_that_move_come_before_tokens_that_differ(case: Case) -> None:
    found = case.records(lambda row: part(drifts(1)(row)), "mtp3")
    assert (found.places[0].token, found.places[0].moved) == (1, True)


def test_the_row_is_known_where_no_draft_was_turned_down(case: Case) -> None:
    case.both(long)
    (place,) = case.records(drifts(7), "mtp3").places
    assert (place.token, place.row, place.rows) == (7, 2, "verify:4")


def test_the_row_is_known_by_the_accepted_answer_too(case: Case) -> None:
    case.both(long)
    fewer = case.records(lambda row: {**drifts(7)(row), "accepted": row["drafted"] - 1}, "mtp3")
    assert fewer.places[0].row == 2


def test_an_arm_agrees_that_goes_wrong_only_later(case: Case) -> None:
    case.both(long)
    change_records(case.run, "eager-mtp3", drifts(9))
    places = {one.arm: one for one in case.records(drifts(7), "mtp3").places}
    assert places["mtp3"].agree == ["graph", "eager-mtp3"]
    assert places["eager-mtp3"].agree == ["graph"]


def test_rows_of_several_widths_are_told_as_such(case: Case) -> None:
    steps = {"prefill": 20, "verify:2": 5, "verify:4": 500}
    change_json(case.run / "mtp3" / "evidence.json", lambda row: {**row, "steps_by_kind": steps})
    assert case.records(part, "mtp3").places[0].rows == "verify:2 to 4"


def test_a_prefill_gives_the_first_token(case: Case) -> None:
    place = case.records(drifts(0), "mtp3").places[0]
    assert (place.rows, place.row, place.position) == ("prefill", None, 39)


def test_another_engine_has_boundaries_only_where_they_are_known(case: Case) -> None:
    case.engine("vllm", "org/GLM-5.3-Flash", block_size=64)
    place = case.records(part, "mtp3").places[0]
    assert (place.in_pool, place.in_block, place.behind_topk) == (1, 41, False)
    case.engine("vllm", "org/some-model")
    found = case.placed()
    assert found.places[0].in_pool is None and found.places[0].position == 41
    assert "the model's pool, block, topk: no boundary of these can be named" in found.untold


def test_without_ids_and_margins_it_says_what_it_cannot_tell(case: Case) -> None:
    case.both(lambda row: {**row, "token_ids": None, "margins": None, "prompt_tokens": None})
    found = case.records(lambda row: {**row, "text": " Other.\n#### 987654"}, "eager-mtp3", "mtp3")
    assert found.places == [] and found.patterns == []
    assert "mtp3: no token ids, so that no place can be named" in found.untold


def test_in_bfloat16_tokens_count_and_margins_do_not(tmp_path: Path) -> None:
    case = Case(tmp_path, items=64, dtype="bfloat16")
    found = case.records(lambda row: part(drifts(1)(row)), "eager-mtp3", "mtp3")
    assert {(one.token, one.moved) for one in found.places} == {(2, False)}


def test_a_verdict_holds_it_on_disk_and_one_without_it_can_be_read(
    case: Case, tmp_path: Path
) -> None:
    change_records(case.run, "mtp3", part)
    result = judge_run(case.run, baseline="none")
    told = read_verdict(case.run)
    assert told == result.verdict and isinstance(told.localisation, Localisation)
    without = msgspec.to_builtins(told)
    del without["localisation"]
    (case.run / "verdict.json").write_bytes(msgspec.json.encode(without))
    assert read_verdict(case.run).localisation is None


def test_the_minis_block_is_the_engines() -> None:
    assert SessionOptions.__dataclass_fields__["block_size"].default == MINI_BLOCK


@pytest.mark.parametrize("damage", [b"not json\n", b'{"item_id": "half'])
def test_a_damaged_file_gives_the_records_before_the_damage(case: Case, damage: bytes) -> None:
    change_records(case.run, "mtp3", part)
    path = case.run / "mtp3" / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]) + damage)
    assert case.placed().places[0].token == 2
