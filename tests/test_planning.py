"""Plans: blocks, turns, and which items are chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsuite.arms import STANDARD_ARMS, parse_arms
from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask, item_id, select
from evalsuite.planning import block_count, blocks, choose_items, turns
from evalsuite.records import Plan


def a_plan(items: int, repeats: int, size: int, arms: int = 3) -> Plan:
    """Return a plan over numbered items."""
    names = tuple(f"i{index}" for index in range(items))
    return Plan(arms=STANDARD_ARMS[:arms], repeats=repeats, block_size=size, items=names)


@given(count=st.integers(0, 400), size=st.integers(1, 300))
def test_blocks_hold_every_item_once_in_order(count: int, size: int) -> None:
    items = [str(index) for index in range(count)]
    cut = blocks(items, size)
    assert [item for block in cut for item in block] == items
    assert all(len(block) <= min(size, 32) for block in cut[:2])
    assert all(len(block) == size for block in cut[2:-1])


@given(items=st.integers(1, 90), repeats=st.integers(1, 3), size=st.integers(1, 40))
def test_interleaved_and_sequential_turns_are_the_same_turns(
    items: int, repeats: int, size: int
) -> None:
    plan = a_plan(items, repeats, size)
    interleaved = list(turns(plan, True))
    assert sorted(interleaved, key=str) == sorted(turns(plan, False), key=str)
    assert {turn.block for turn in interleaved} == set(range(block_count(plan)))


def test_arms_take_turns_forwards_and_backwards() -> None:
    order = [(turn.block, turn.arm.name) for turn in turns(a_plan(16, 1, 8, arms=2), True)]
    assert order == [(0, "eager"), (0, "graph"), (1, "graph"), (1, "eager")]


def test_an_engine_of_one_session_runs_arm_by_arm() -> None:
    order = [turn.arm.name for turn in turns(a_plan(16, 2, 8, arms=2), False)]
    assert order == ["eager"] * 4 + ["graph"] * 4


def test_smaller_draws_are_subsets_of_larger_ones(gsm_mini_task: HarnessTask) -> None:
    def drawn(limit: int | None) -> list[str]:
        return [entry.item.item_id for entry in select(gsm_mini_task.items, limit)]

    everything = drawn(None)
    assert len(everything) == 1319
    assert set(drawn(50)) < set(drawn(200)) < set(everything)
    assert drawn(200) == [item for item in everything if item in set(drawn(200))]
    # Drawn over the whole file, not from its beginning.
    positions = [everything.index(item) for item in drawn(200)]
    assert 400 < sum(positions) / 200 < 900
    with pytest.raises(UsageError, match="1320 items asked for, the task has 1319"):
        drawn(1320)


def test_an_id_depends_on_question_and_gold_alone() -> None:
    assert item_id("q", "3") == item_id("q", "3")
    assert len({item_id("q", "3"), item_id("q", "4"), item_id("q3", ""), item_id("q", None)}) == 4


def test_items_are_taken_from_a_file(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    path = tmp_path / "items.txt"
    wanted = [gsm_mini_task.items[index].item.item_id for index in (7, 3, 900)]
    path.write_text("\n".join(wanted) + "\n\n")
    chosen = choose_items(gsm_mini_task, None, str(path))
    assert [entry.item.item_id for entry in chosen] == [wanted[1], wanted[0], wanted[2]]
    assert len(choose_items(gsm_mini_task, 2, str(path))) == 2


def test_a_bad_items_file_is_refused(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    path = tmp_path / "items.txt"
    path.write_text(f"{gsm_mini_task.items[0].item.item_id}\nnosuch\n")
    with pytest.raises(UsageError, match=r"items\.txt:2: item_id: .*nosuch"):
        choose_items(gsm_mini_task, None, str(path))
    path.write_text("\n")
    with pytest.raises(UsageError, match="names no item"):
        choose_items(gsm_mini_task, None, str(path))
    with pytest.raises(UsageError, match="cannot be read"):
        choose_items(gsm_mini_task, None, str(tmp_path / "none"))


def test_parsing_keeps_the_order_asked_for() -> None:
    assert [arm.name for arm in parse_arms(["mtp3", "eager"])] == ["mtp3", "eager"]
