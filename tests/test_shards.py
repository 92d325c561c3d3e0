"""Parts of a draw, and the runs of all parts joined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from evalsuite.cli import main
from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask, TaskItem, select
from evalsuite.records import Item
from evalsuite.shards import Part, hash_of, parse_part, take_part
from evalsuite.storage import read_records, read_run

ARMS = ("eager", "graph", "mtp2")


@given(count=st.integers(1, 60), of=st.integers(1, 9))
def test_parts_are_disjoint_even_and_cover_everything(count: int, of: int) -> None:
    items = [
        TaskItem(Item(item_id=f"{n:016x}", question=str(n), gold=None), "") for n in range(count)
    ]
    if of > count:
        with pytest.raises(UsageError, match=f"{count} items do not fill {of} shards"):
            take_part(items, Part(of, of))
        return
    parts = [take_part(items, Part(number, of)) for number in range(1, of + 1)]
    sizes = {len(chosen) for chosen, _ in parts}
    assert max(sizes) - min(sizes) <= 1
    placed = {
        place: entry
        for chosen, shard in parts
        for place, entry in zip(shard.places, chosen, strict=True)
    }
    assert [placed[place] for place in range(count)] == items
    assert sum(len(chosen) for chosen, _ in parts) == count
    ids = [entry.item.item_id for entry in items]
    assert {shard.whole for _, shard in parts} == {hash_of(ids)}


def test_one_part_follows_the_draw_of_limit(gsm_mini_task: HarnessTask) -> None:
    items = select(gsm_mini_task.items, 40)
    chosen, _ = take_part(items, Part(1, 40))
    assert chosen == select(items, 1)
    half, _ = take_part(items, Part(1, 2))
    assert set(select(items, 1)) < set(half) and set(half) & set(select(items, 20))


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/0", "1/2/3", "a/b", "-1/2", " 1/2"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="shard: "):
        parse_part(text)


def timeless(folder: Path, arm: str) -> list[dict[str, Any]]:
    """An arm's records without times and block numbers."""
    found = [msgspec.to_builtins(record) for record in read_records(folder, arm)]
    for row in found:
        for name in ("started", "ended", "ttft_s", "block"):
            del row[name]
    return sorted(found, key=lambda row: row["item_id"])


def test_jobs_run_shards_that_merge_into_the_run_of_one(tmp_path: Path) -> None:
    suite = tmp_path / "fake.yaml"
    arms = ", ".join(ARMS)
    suite.write_text(
        "name: fake\nengine:\n  kind: fake_engine:open_engine\n"
        f"task: gsm_mini\nlimit: 50\narms: [{arms}]\n"
    )

    def run(name: str, *more: str) -> Path:
        out = tmp_path / name
        arguments = ["run", str(suite), "--no-judge", "--out", str(out), *more]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        return out

    whole = run("whole")
    parts = [str(run(f"part-{n}", "--shard", f"{n}/3")) for n in (1, 2, 3)]
    assert [len(read_run(Path(part)).plan.items) for part in parts] == [17, 17, 16]
    out = tmp_path / "joined"
    done = CliRunner().invoke(main, ["merge", *parts, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["items"] == 50
    assert read_run(out).plan.items == read_run(whole).plan.items
    for arm in ARMS:
        assert timeless(out, arm) == timeless(whole, arm)
    other = CliRunner().invoke(
        main, ["run", str(suite), "--no-judge", "--out", parts[0], "--resume", "--shard", "2/3"]
    )
    assert other.exit_code == 2 and "shard.index: 2 != 1" in other.output
