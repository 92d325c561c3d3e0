"""Blocks and ratios: only blocks in which two arms answered the same items are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_factory import Factory, arms, change_records

from evalsuite.runload import load_run
from evalsuite.walls import arm_seconds, common_blocks, ratios_in


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four blocks of 16 items in two arms."""
    return Factory.of(64, arms=arms("eager", "graph")).make(tmp_path / "run")


def test_blocks_last_from_first_start_to_last_end(run):
    view = load_run(run)
    top, bottom = common_blocks(view.arms["graph"], view.arms["eager"])
    assert len(top) == len(bottom) == 4
    assert arm_seconds(view.arms["eager"]) == pytest.approx(float(bottom.sum()))
    assert ratios_in(view)["graph"].ratio == pytest.approx(float(top.sum() / bottom.sum()))


def test_a_block_split_by_an_interruption_is_left_out(run):
    first = load_run(run).ids[0]
    before = ratios_in(load_run(run))["graph"]

    def split(row):
        moved = row["item_id"] == first
        return {**row, "block": 4, "ended": row["started"] + 500.0} if moved else row

    change_records(run, "graph", split)
    view = load_run(run)
    top, _ = common_blocks(view.arms["graph"], view.arms["eager"])
    found = ratios_in(view)["graph"]
    assert len(top) == 3
    assert (before.blocks, found.blocks) == (4, 3)
    assert found.ratio == pytest.approx(before.ratio, rel=0.05)


def test_untimed_records_give_no_ratio(run):
    for arm in ("eager", "graph"):
        change_records(run, arm, lambda row: {**row, "started": 0.0, "ended": 0.0})
    view = load_run(run)
    assert ratios_in(view) == {}
    assert arm_seconds(view.arms["eager"]) == 0.0
