"""Joining runs: what comes out is the run that was cut up, and nothing else is joined."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from run_factory import Factory, arms, change_json, change_records, rows, write_rows

from evalsuite.cli import main
from evalsuite.errors import UsageError
from evalsuite.merge import merge_runs
from evalsuite.runload import load_run
from evalsuite.shards import hash_of
from evalsuite.storage import read_evidence, read_items, read_records, read_run
from evalsuite.walls import ratios_in

NAMES = ("eager", "graph", "mtp2")
ITEMS = 50


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A run of three arms over 50 items in two repeats."""
    factory = Factory.of(ITEMS, arms=arms(*NAMES), repeats=2, block_size=8)
    return factory.make(tmp_path / "whole")


def cut(
    whole: Path, folder: Path, keep_items: Sequence[str], keep_arms: Sequence[str] = NAMES
) -> Path:
    """Write the part of `whole` that these items and arms make."""
    kept = set(keep_items)
    run = json.loads((whole / "run.json").read_text())
    run["plan"]["items"] = [item for item in run["plan"]["items"] if item in kept]
    run["plan"]["arms"] = [arm for arm in run["plan"]["arms"] if arm["name"] in keep_arms]
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run))
    items = [row for row in rows(whole / "items.jsonl") if row["item_id"] in kept]
    write_rows(folder / "items.jsonl", items)
    for arm in keep_arms:
        (folder / arm).mkdir()
        records = [r for r in rows(whole / arm / "records.jsonl") if r["item_id"] in kept]
        write_rows(folder / arm / "records.jsonl", records)
        shutil.copy(whole / arm / "evidence.json", folder / arm)
    return folder


def draw(whole: Path, folder: Path, count: int) -> list[Path]:
    """Cut `whole` into `count` shards of its items that know their place, every third one say."""
    ids = list(read_run(whole).plan.items)
    made = []
    for number in range(1, count + 1):
        places = list(range(number - 1, len(ids), count))
        made.append(cut(whole, folder / f"shard-{number}", [ids[place] for place in places]))
        shard = {"index": number, "count": count, "whole": hash_of(ids), "places": places}
        change_json(made[-1] / "run.json", lambda run, shard=shard: {**run, "shard": shard})
    return made


def answers(folder: Path, arm: str) -> list[dict[str, Any]]:
    """An arm's records without block numbers, by item and repeat."""
    found = [msgspec.to_builtins(record) for record in read_records(folder, arm)]
    for row in found:
        del row["block"]
    return sorted(found, key=lambda row: (row["item_id"], row["repeat"]))


def test_shards_of_a_draw_become_the_whole_run_again(whole: Path, tmp_path: Path) -> None:
    shards = draw(whole, tmp_path, 3)
    merge_runs([shards[2], shards[0], shards[1]], tmp_path / "out")
    joined, before = read_run(tmp_path / "out"), read_run(whole)
    assert joined.plan == before.plan and joined.shard is None
    assert joined.differences(before) == ()
    assert [item.item_id for item in read_items(tmp_path / "out")] == list(before.plan.items)
    for arm in NAMES:
        assert answers(tmp_path / "out", arm) == answers(whole, arm)
        # Each shard brought the evidence of the whole run along.
        found, one = read_evidence(tmp_path / "out", arm), read_evidence(whole, arm)
        assert found.graph_replays == 3 * (one.graph_replays or 0)
    assert [arm.problems for arm in load_run(tmp_path / "out").arms.values()] == [[], [], []]


def test_blocks_stay_comparable_between_arms(whole: Path, tmp_path: Path) -> None:
    ids = read_run(whole).plan.items
    parts = [
        cut(whole, tmp_path / f"{arm}-{half}", ids[half::2], [arm])
        for arm in NAMES
        for half in (0, 1)
    ]
    merge_runs(parts, tmp_path / "out")
    joined = load_run(tmp_path / "out")
    for arm in joined.arms.values():
        blocks = arm.block.tolist()
        # Seven blocks of a repeat, each cut in two.
        assert len({number for row in blocks for number in row}) == 2 * 2 * 7
        assert blocks == joined.arms["eager"].block.tolist()
    assert set(ratios_in(joined)) == {"graph", "mtp2"}


def test_equal_runs_are_repeats_where_asked(tmp_path: Path) -> None:
    factory = Factory.of(20, arms=arms(*NAMES))
    parts = [factory.make(tmp_path / f"r{seed}", seed) for seed in range(3)]
    with pytest.raises(UsageError, match=r"r1: items: holds item .* and 59 more, as .*r0 does"):
        merge_runs(parts, tmp_path / "out")
    merge_runs(parts, tmp_path / "out", as_repeats=True)
    assert read_run(tmp_path / "out").plan.repeats == 3
    assert read_run(tmp_path / "out").created == read_run(parts[0]).created
    for arm in NAMES:
        found = answers(tmp_path / "out", arm)
        for repeat, part in enumerate(parts):
            own = [row | {"repeat": 0} for row in found if row["repeat"] == repeat]
            assert own == answers(part, arm)
        blocks = load_run(tmp_path / "out").arms[arm].block
        assert len({frozenset(row) for row in blocks.tolist()}) == 3
        assert not set(blocks[0].tolist()) & set(blocks[1].tolist())


def test_shards_and_repeats_at_once(tmp_path: Path) -> None:
    factory, parts = Factory.of(20, arms=arms(*NAMES)), []
    for seed in range(2):
        run = factory.make(tmp_path / f"whole-{seed}", seed)
        (tmp_path / f"{seed}").mkdir()
        parts += draw(run, tmp_path / f"{seed}", 2)
    merge_runs(parts, tmp_path / "out", as_repeats=True)
    assert read_run(tmp_path / "out").plan.repeats == 2
    with pytest.raises(UsageError, match=r"the runs hold 1 of 2 repeats for item"):
        merge_runs(parts[:3], tmp_path / "other", as_repeats=True)


def altered(path: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Return what changes one JSON file of a run."""
    return lambda folder: change_json(folder / path, change)


def with_text(row: dict[str, Any]) -> dict[str, Any]:
    """A record whose text no longer is what its outcome says."""
    return row | {"text": "It is 5.\n#### 5"}


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "protocol": (
        altered("run.json", lambda run: run | {"protocol": run["protocol"] | {"max_tokens": 65}}),
        "fingerprint",
    ),
    "model": (
        altered("run.json", lambda run: run | {"model_hash": "feedfeedfeedfeed", "dtype": "x"}),
        r"(?s)shard-2: cannot be joined .*dtype: 'x' != 'float32'\n  model_hash: 'feed",
    ),
    "hardware": (
        altered("run.json", lambda run: run | {"hardware": run["hardware"] | {"name": "other"}}),
        "hardware.name: 'other' != 'test'",
    ),
    "software": (
        altered("run.json", lambda run: run | {"software": {"made": "2"}}),
        "software.made: '2' != '1'",
    ),
    "repeats": (
        lambda folder: (
            altered("run.json", lambda run: run | {"plan": run["plan"] | {"repeats": 1}})(folder),
            [
                change_records(folder, arm, lambda r: r if not r["repeat"] else None)
                for arm in NAMES
            ],
        ),
        "plan.repeats: 1 != 2",
    ),
    "draw": (
        altered("run.json", lambda run: run | {"shard": run["shard"] | {"count": 4}}),
        "shard-2: shard: is of another draw",
    ),
    "no shard": (
        altered("run.json", lambda run: run | {"shard": None}),
        "shard-2: shards of a draw cannot be joined with whole runs",
    ),
    "places": (
        altered(
            "run.json",
            lambda run: run | {"shard": run["shard"] | {"places": run["shard"]["places"][::-1]}},
        ),
        "not those of their draw",
    ),
    "torn": (
        lambda folder: (folder / "graph/records.jsonl").open("a").write('{"item'),
        "shard-2: .*graph/records.jsonl:.* torn",
    ),
    "altered": (
        lambda folder: change_records(folder, "graph", with_text, rescore=False),
        "shard-2: (outcome|answer) of .* is not what their text and gold give",
    ),
    "answers missing": (
        lambda folder: change_records(folder, "mtp2", lambda r: None if r["repeat"] else r),
        "shard-2: mtp2 has 17 of 34 planned answers",
    ),
    "unfinished": (
        lambda folder: (folder / "mtp2/evidence.json").unlink(),
        "shard-2: mtp2 was not run to its end",
    ),
    "evidence": (
        altered("mtp2/evidence.json", lambda found: found | {"backend": "other"}),
        "mtp2/evidence.json: backend: mtp2 ran otherwise",
    ),
    "no folder": (shutil.rmtree, "shard-2: no such run folder"),
    "no items": (lambda folder: (folder / "items.jsonl").unlink(), "items.jsonl: is missing"),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_what_does_not_belong_together_is_refused(whole: Path, tmp_path: Path, fault: str) -> None:
    break_it, message = DAMAGE[fault]
    shards = draw(whole, tmp_path, 3)
    break_it(shards[1])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError, match=message) as caught:
        merge_runs(shards, tmp_path / "out")
    assert caught.value.exit_code == 2
    assert [path for path in before if path.exists()] == sorted(tmp_path.iterdir())


def test_gaps_and_copies_are_refused(whole: Path, tmp_path: Path) -> None:
    shards = draw(whole, tmp_path, 3)
    with pytest.raises(UsageError, match="shard: missing: 2/3"):
        merge_runs([shards[0], shards[2]], tmp_path / "out")
    ids = read_run(whole).plan.items
    one = cut(whole, tmp_path / "one", ids[:20], ["eager"])
    other = cut(whole, tmp_path / "other", ids[20:], ["graph"])
    with pytest.raises(UsageError, match=r"no run holds item .* of arm .* and 49 more"):
        merge_runs([one, other], tmp_path / "out")
    shutil.copytree(one, tmp_path / "copy")
    with pytest.raises(UsageError, match=r"copy: holds the very answers of .*one"):
        merge_runs([one, tmp_path / "copy"], tmp_path / "out", as_repeats=True)
    with pytest.raises(UsageError, match="other: is there already"):
        merge_runs([one], other)
    assert not (tmp_path / "out").exists()


def test_machines_may_differ_where_asked(whole: Path, tmp_path: Path) -> None:
    shards = draw(whole, tmp_path, 2)
    altered("run.json", lambda run: run | {"hardware": run["hardware"] | {"name": "b"}})(shards[1])
    merge_runs(shards, tmp_path / "out", mixed_hardware=True)
    hardware = read_run(tmp_path / "out").hardware
    assert hardware == {"device": "cpu", "name": "test + b", "count": 1}


def test_arms_that_stopped_early_are_joined_where_asked(whole: Path, tmp_path: Path) -> None:
    shards = draw(whole, tmp_path, 2)
    change_records(shards[0], "graph", lambda r: None if r["repeat"] else r)
    (shards[1] / "mtp2" / "evidence.json").unlink()
    (shards[1] / "mtp2" / "engine.log").write_text("lost the device\n")
    merge_runs(shards, tmp_path / "out", partial=True)
    joined = load_run(tmp_path / "out")
    assert not joined.arms["graph"].complete and joined.arms["graph"].finished
    assert joined.arms["mtp2"].complete and not joined.arms["mtp2"].finished
    assert (tmp_path / "out" / "mtp2" / "engine.log").read_text() == "lost the device\n"


def test_the_command_joins_and_tells(whole: Path, tmp_path: Path) -> None:
    shards = [str(shard) for shard in draw(whole, tmp_path, 2)]
    out = str(tmp_path / "out")
    done = CliRunner().invoke(main, ["merge", *shards, "--out", out, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told == {
        "run": out, "exit_code": 0, "shards": 2, "arms": list(NAMES), "items": ITEMS, "repeats": 2,
    }  # fmt: skip
    again = CliRunner().invoke(main, ["merge", *shards, "--out", out])
    assert again.exit_code == 2
    assert again.stderr == f"evalsuite: {out}: is there already\n"
    judged = CliRunner().invoke(main, ["judge", out, "--baseline", "none", "--json"])
    assert judged.exit_code == 0, judged.output
