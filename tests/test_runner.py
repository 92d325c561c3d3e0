"""Running arms into a folder: what is written, and what survives."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_engine import FakeEngine

from evalsuite.errors import RunIncomplete, UsageError
from evalsuite.harness import HarnessTask, select
from evalsuite.records import Record, Run
from evalsuite.runfolder import Mode
from evalsuite.runner import Executed, StopRule, execute
from evalsuite.storage import read_evidence, read_items, read_records, read_run
from evalsuite.suite import Suite
from evalsuite.summary import summarize

KILLS = 50
ARMS = ("eager", "graph", "mtp2")


class Silent:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.answers: list[str] = []
        self.started: list[str] = []

    def warming(self, arm: str) -> None:
        self.started.append(arm)

    def begin(self, run: Run, done: dict[str, int]) -> None:
        self.done = done

    def answered(self, arm: str) -> None:
        self.answers.append(arm)

    def recorded(self, record: Record) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


Runner = Callable[..., Executed]


@pytest.fixture
def run(gsm_mini_task: HarnessTask, fake_suite: Suite) -> Runner:
    """Return a function that runs the fake suite into a folder."""

    def start(
        folder: Path,
        *,
        mode: Mode = "new",
        limit: int = 24,
        options: dict[str, Any] | None = None,
        watcher: Silent | None = None,
        stop_rule: StopRule | None = None,
        **changes: Any,
    ) -> Executed:
        suite = msgspec.structs.replace(fake_suite, **changes)
        items = select(gsm_mini_task.items, limit)
        return execute(
            suite, gsm_mini_task, items, FakeEngine(options or {}), folder,
            mode=mode, watcher=watcher or Silent(),
            stop_rule_of=None if stop_rule is None else lambda run, note: stop_rule,
        )  # fmt: skip

    return start


def timeless(folder: Path, arm: str) -> list[dict[str, Any]]:
    """Return an arm's records without times and block numbers, by item and repeat."""
    rows = [msgspec.to_builtins(record) for record in read_records(folder, arm)]
    for row in rows:
        for field in ("started", "ended", "ttft_s", "block"):
            del row[field]
    return sorted(rows, key=lambda row: (row["item_id"], row["repeat"]))


def test_a_run_folder_holds_what_the_design_says(run: Runner, tmp_path: Path) -> None:
    executed = run(tmp_path / "r", repeats=2)
    assert (executed.failed, executed.stopped) == ({}, {})
    folder = executed.folder
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted([".lock", "run.json", "items.jsonl", *ARMS])
    stored = read_run(folder)
    assert [item.item_id for item in read_items(folder)] == list(stored.plan.items)
    assert stored.fingerprint == stored.protocol.fingerprint()
    for arm in ARMS:
        assert sorted(path.name for path in (folder / arm).iterdir()) == [
            "evidence.json", "records.jsonl",
        ]  # fmt: skip
        keys = [(record.item_id, record.repeat) for record in read_records(folder, arm)]
        assert len(keys) == len(set(keys)) == 48
        assert {item for item, _ in keys} == set(stored.plan.items)
    assert read_evidence(folder, "eager").eager_decode_steps == 480
    assert read_evidence(folder, "graph").graph_replays == 480


def test_a_block_is_one_arms_turn_in_time(run: Runner, tmp_path: Path) -> None:
    run(tmp_path / "r", options={"delay_s": 0.0005})
    spans = []
    for arm in ARMS:
        by_block: dict[int, list[Record]] = {}
        for record in read_records(tmp_path / "r", arm):
            by_block.setdefault(record.block, []).append(record)
        assert {block: len(group) for block, group in by_block.items()} == {0: 8, 1: 8, 2: 8}
        spans += [
            (min(r.started for r in group), max(r.ended for r in group), block, arm)
            for block, group in by_block.items()
        ]
    spans.sort()
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert [(block, arm) for _, _, block, arm in spans] == [
        *((0, arm) for arm in ARMS), *((1, arm) for arm in reversed(ARMS)),
        *((2, arm) for arm in ARMS),
    ]  # fmt: skip


def test_an_engine_of_one_session_has_one_arm_open_at_a_time(run: Runner, tmp_path: Path) -> None:
    watcher = Silent()
    run(tmp_path / "a", options={"interleaves": False}, watcher=watcher)
    assert watcher.answers == [arm for arm in ARMS for _ in range(24)]
    run(tmp_path / "b")
    for arm in ARMS:
        assert timeless(tmp_path / "a", arm) == timeless(tmp_path / "b", arm)


def test_records_are_scored(run: Runner, tmp_path: Path) -> None:
    run(tmp_path / "r", options={"accuracy": 0.5}, limit=100)
    records = read_records(tmp_path / "r", "eager")
    gold = {item.item_id: item.gold for item in read_items(tmp_path / "r")}
    outcomes = {record.outcome for record in records}
    assert outcomes == {"correct", "wrong"}
    for record in records:
        right = record.answer == gold[record.item_id]
        assert (record.outcome == "correct") == right == (record.strict == gold[record.item_id])
    summary = summarize(tmp_path / "r")[0]
    share = sum(record.outcome == "correct" for record in records) / 100
    assert summary.accuracy == summary.strict == summary.flexible == share
    assert 0.3 < share < 0.7


def test_a_folder_that_holds_a_run_is_not_written_to_unasked(run: Runner, tmp_path: Path) -> None:
    run(tmp_path / "r")
    before = (tmp_path / "r" / "run.json").read_bytes()
    with pytest.raises(UsageError, match="--resume or --fresh"):
        run(tmp_path / "r", limit=16)
    assert (tmp_path / "r" / "run.json").read_bytes() == before
    run(tmp_path / "r", mode="fresh", limit=16, arms=("eager",))
    assert len(read_records(tmp_path / "r", "eager")) == 16
    assert not (tmp_path / "r" / "graph").exists()


def test_a_folder_of_something_else_is_left_alone(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("words")
    for mode in ("new", "resume", "fresh"):
        with pytest.raises(UsageError, match=r"thesis\.tex"):
            run(tmp_path, mode=mode)
    assert (tmp_path / "thesis.tex").read_text() == "words"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"limit": 16}, "plan.items"),
        ({"arms": ("eager", "graph")}, "plan.arms"),
        ({"repeats": 2}, "plan.repeats"),
        ({"options": {"model_hash": "f" * 16}}, "model_hash"),
    ],
)
def test_another_run_is_not_resumed_and_the_difference_is_named(
    run: Runner, tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    run(tmp_path / "r")
    with pytest.raises(UsageError, match=rf"cannot be resumed:\n  {field}: "):
        run(tmp_path / "r", mode="resume", **changes)


def test_there_must_be_something_to_resume(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such run to resume"):
        run(tmp_path / "mistyped", mode="resume")
    assert not (tmp_path / "mistyped").exists()


def test_another_software_version_is_not_resumed(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "r")
    monkeypatch.setenv("FAKE_VERSION", "2")
    with pytest.raises(UsageError, match=r"software\.fake: '2' != '1'"):
        run(tmp_path / "r", mode="resume")


def test_a_finished_run_resumed_asks_nothing(run: Runner, tmp_path: Path) -> None:
    run(tmp_path / "r")
    files = {path: path.read_bytes() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    watcher = Silent()
    run(tmp_path / "r", mode="resume", watcher=watcher)
    assert (watcher.answers, watcher.started) == ([], [])
    assert watcher.done == dict.fromkeys(ARMS, 24)
    assert files == {p: p.read_bytes() for p in (tmp_path / "r").rglob("*") if p.is_file()}


def test_resume_asks_only_what_is_missing(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(RunIncomplete, match="interrupted"):
        run(tmp_path / "r", options={"interrupt_after": 20})
    saved = {arm: timeless(tmp_path / "r", arm) for arm in ARMS}
    assert sum(len(rows) for rows in saved.values()) == 20
    watcher = Silent()
    run(tmp_path / "r", mode="resume", watcher=watcher)
    assert len(watcher.answers) == 3 * 24 - 20
    run(tmp_path / "whole")
    for arm in ARMS:
        assert timeless(tmp_path / "r", arm) == timeless(tmp_path / "whole", arm)
        evidence = read_evidence(tmp_path / "r", arm)
        assert evidence == read_evidence(tmp_path / "whole", arm)


def test_the_rest_of_an_interrupted_block_has_its_own_number(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(RunIncomplete):
        run(tmp_path / "r", options={"interrupt_after": 20})
    run(tmp_path / "r", mode="resume")
    blocks: dict[str, dict[int, int]] = {}
    for arm in ARMS:
        blocks[arm] = {}
        for record in read_records(tmp_path / "r", arm):
            blocks[arm][record.block] = blocks[arm].get(record.block, 0) + 1
    # 8 + 8 answers, then 4 of mtp2's first block: its other 4 are block 0 + 3.
    assert blocks["eager"] == blocks["graph"] == {0: 8, 1: 8, 2: 8}
    assert blocks["mtp2"] == {0: 4, 3: 4, 1: 8, 2: 8}


def test_a_request_that_no_arm_can_serve_is_refused_before_anything_is_written(
    run: Runner, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="prompt"):
        run(tmp_path / "r", options={"max_prompt": 100})
    assert not (tmp_path / "r").exists()


def test_an_arm_that_the_engine_refuses_is_refused_before_anything_is_written(
    run: Runner, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="mtp2 asks for graphs"):
        run(tmp_path / "r", options={"refuse_arm": "mtp2"})
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("option", ["crash_in_warm_up", "crash_arm", "lose_arm"])
@pytest.mark.parametrize("interleaved", [True, False])
def test_an_arm_that_fails_does_not_stop_the_others(
    run: Runner, tmp_path: Path, option: str, interleaved: bool
) -> None:
    watcher = Silent()
    options = {option: "graph", "interleaves": interleaved}
    executed = run(tmp_path / "r", options=options, watcher=watcher)
    assert list(executed.failed) == ["graph"]
    assert executed.failed["graph"] in watcher.notes[0]
    for arm in ("eager", "mtp2"):
        assert len(read_records(tmp_path / "r", arm)) == 24
    assert not (tmp_path / "r" / "graph" / "evidence.json").exists()
    assert len(read_records(tmp_path / "r", "graph")) == (0 if "warm" in option else 3)
    assert run(tmp_path / "r", mode="resume").failed == {}
    assert len(read_records(tmp_path / "r", "graph")) == 24
    assert (tmp_path / "r" / "graph" / "evidence.json").exists()


def test_the_traceback_of_a_failed_arm_is_kept_without_secrets(run: Runner, tmp_path: Path) -> None:
    executed = run(tmp_path / "r", options={"crash_arm": "graph"})
    log = (tmp_path / "r" / "graph" / "engine.log").read_text()
    assert "Traceback" in log
    assert "device lost" in log
    assert "abcdefghij123456" not in log + executed.failed["graph"]


def test_logits_that_are_not_numbers_are_an_error_and_never_reach_the_file(
    run: Runner, tmp_path: Path
) -> None:
    assert run(tmp_path / "r", options={"nan_arm": "graph"}).failed == {}
    assert len(read_records(tmp_path / "r", "graph")) == 24
    for record in read_records(tmp_path / "r", "graph"):
        assert record.outcome == "error"
        assert record.margins is None
        assert "not finite" in (record.error or "")
    assert "nan" not in (tmp_path / "r" / "graph" / "records.jsonl").read_text().split('"error"')[0]
    assert {record.outcome for record in read_records(tmp_path / "r", "eager")} != {"error"}


def test_a_collapsed_arm_is_stopped_and_the_matrix_goes_on(run: Runner, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def rule(arm: str, records: Sequence[Record]) -> str | None:
        seen.append((arm, len(records)))
        plan = read_run(tmp_path / "r").plan.items
        assert [record.item_id for record in records] == list(plan[: len(records)])
        return "too few right" if arm == "graph" and len(records) >= 16 else None

    executed = run(tmp_path / "r", stop_rule=rule)
    assert executed.stopped == {"graph": "too few right"}
    assert executed.failed == {}
    assert len(read_records(tmp_path / "r", "graph")) == 16
    assert len(read_records(tmp_path / "r", "mtp2")) == 24
    assert read_evidence(tmp_path / "r", "graph").graph_replays == 160
    assert [count for arm, count in seen if arm == "eager"] == [8, 16, 24]


def in_child(work: Callable[[], object]) -> int:
    """Start `work` in a child process and return its id."""
    child = os.fork()
    if child:
        return child
    code = 9
    try:
        work()
        code = 0
    except RunIncomplete as problem:
        code = problem.exit_code
    finally:
        os._exit(code)


def test_a_second_writer_is_refused_while_the_first_goes_on(run: Runner, tmp_path: Path) -> None:
    child = in_child(lambda: run(tmp_path / "r", options={"delay_s": 0.1}))
    while not (tmp_path / "r" / "run.json").exists():
        time.sleep(0.005)
    for mode in ("new", "resume", "fresh"):
        with pytest.raises(UsageError, match="another process is writing"):
            run(tmp_path / "r", mode=mode)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(read_records(tmp_path / "r", "mtp2")) == 24


def test_a_run_ended_by_a_signal_can_be_resumed(run: Runner, tmp_path: Path) -> None:
    def interrupted() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run(tmp_path / "r", options={"delay_s": 0.01})

    child = in_child(interrupted)
    while not (tmp_path / "r" / "eager" / "records.jsonl").exists():
        time.sleep(0.005)
    time.sleep(0.15)
    os.kill(child, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert 0 < len(read_records(tmp_path / "r", "eager")) <= 24
    run(tmp_path / "r", mode="resume")
    run(tmp_path / "whole")
    for arm in ARMS:
        assert timeless(tmp_path / "r", arm) == timeless(tmp_path / "whole", arm)


def test_runs_killed_at_random_moments_and_resumed_give_the_same_records(
    run: Runner, tmp_path: Path
) -> None:
    """Each run is killed with SIGKILL at a random moment, once or twice, and then resumed."""
    options = {"delay_s": 0.0005, "accuracy": 0.8}
    began = time.monotonic()
    run(tmp_path / "whole", options=options)
    whole_s = time.monotonic() - began
    expected = {arm: timeless(tmp_path / "whole", arm) for arm in ARMS}
    rng = random.Random(7)
    unfinished = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        for _ in range(rng.choice((1, 2))):
            mode = "resume" if folder.exists() else "new"
            child = in_child(partial(run, folder, mode=mode, options=options))
            time.sleep(rng.uniform(0, 1.1 * whole_s))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        begun = (folder / "run.json").exists()
        finished = all((folder / arm / "evidence.json").exists() for arm in ARMS)
        unfinished += begun and not finished
        run(folder, mode="resume" if folder.exists() else "new", options=options)
        assert list(folder.rglob(".*.tmp")) == []
        for arm in ARMS:
            assert timeless(folder, arm) == expected[arm]
            evidence = read_evidence(folder, arm)
            # Work that was done and killed before it was saved may be counted twice, never lost.
            assert evidence.steps_by_kind is not None
            assert max(evidence.steps_by_kind.values()) >= 240
            assert not (folder / arm / "evidence.partial.json").exists()
    assert unfinished >= KILLS // 3


def test_a_torn_last_line_is_dropped_on_resume(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(RunIncomplete):
        run(tmp_path / "r", options={"interrupt_after": 20})
    path = tmp_path / "r" / "eager" / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-25])
    run(tmp_path / "r", mode="resume")
    items = [json.loads(line)["item_id"] for line in path.read_text().splitlines()]
    assert len(items) == len(set(items)) == 24
