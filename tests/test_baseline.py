"""Accepting, pooling, refusing, showing; published figures; comparing two runs; power."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from run_factory import Factory, arms, change_json, change_records, rows, write_rows

from evalsuite.baseline import accept_baseline, diff_baseline, show_baseline
from evalsuite.baseline_file import read_answers, read_baseline
from evalsuite.checks.collapse import collapse_rule
from evalsuite.compare import compare_runs
from evalsuite.errors import UsageError
from evalsuite.judge import judge
from evalsuite.policy import Policy
from evalsuite.power import power_statement
from evalsuite.reference import from_run
from evalsuite.runload import load_run

ARMS = arms("eager", "graph", "mtp2")


@pytest.fixture
def factory() -> Factory:
    return Factory.of(48, arms=ARMS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "baselines"


def accepted(root: Path):
    path = root / "made" / "float32.json"
    return path, read_baseline(path)


def wrong_text(row: dict) -> dict:
    return {**row, "text": " It is 1.\n#### 1"}


def test_runs_pool_and_history_keeps_figures(factory, root, tmp_path):
    for seed in range(3):
        accept_baseline(factory.make(tmp_path / f"r{seed}", seed), f"run {seed}", root=root)
    path, baseline = accepted(root)
    assert [entry.why for entry in baseline.history] == ["run 0", "run 1", "run 2"]
    assert baseline.history[0].old == {} and baseline.history[2].old == baseline.history[1].new
    assert len(baseline.runs) == 3 and baseline.items == 48
    answers = read_answers(path, baseline)
    assert all(len(cells) == 3 for row in answers.values() for cells in row.arms.values())
    record = rows(tmp_path / "r1" / "mtp2" / "records.jsonl")[7]
    row = answers[record["item_id"]]
    assert row.texts[row.arms["mtp2"][1].text] == record["text"]
    (hardware,) = baseline.hardware.values()
    assert len(hardware.runs) == 3 and hardware.routes["mtp2"]["verify:3"] == "ragged"


def test_flip_rate_of_pooled_runs_is_shown(root, tmp_path):
    factory = Factory.of(200, arms=ARMS).noisy(0.05)
    for seed in range(3):
        accept_baseline(factory.make(tmp_path / f"r{seed}", seed), "first", root=root)
    shown = show_baseline("made", root=root).as_json()
    assert 0.01 < shown["flip_rate"]["eager"] < 0.1
    right = np.array(
        [
            [row["outcome"] == "correct" for row in rows(tmp_path / f"r{s}/eager/records.jsonl")]
            for s in range(3)
        ]
    )
    k = right.sum(axis=0)
    assert shown["flip_rate"]["eager"] == pytest.approx(float(np.mean(k * (3 - k) / 3)))


def test_bytes_depend_on_the_answers_alone(factory, root, tmp_path):
    folder = factory.make(tmp_path / "r")
    accept_baseline(folder, "first", root=root)
    path = folder / "eager" / "records.jsonl"
    write_rows(path, rows(path)[::-1])
    accept_baseline(folder, "first", root=tmp_path / "again")
    one, two = (base / "made" / "float32.answers.jsonl.gz" for base in (root, tmp_path / "again"))
    assert one.read_bytes() == two.read_bytes()


def test_failing_and_partial_runs_are_refused_unless_forced(factory, root, tmp_path):
    folder = factory.make(tmp_path / "r")
    change_records(folder, "mtp2", wrong_text)
    path = folder / "graph" / "records.jsonl"
    write_rows(path, rows(path)[:-4])
    with pytest.raises(UsageError, match="not accepted without --force") as caught:
        accept_baseline(folder, "hurry", root=root)
    assert "completeness: graph has 44 of 48" in str(caught.value)
    assert "accuracy: mtp2 lost" in str(caught.value)
    assert not root.exists()
    accept_baseline(folder, "known", root=root, force=True, who="somebody")
    _, baseline = accepted(root)
    (entry,) = baseline.history
    assert entry.forced and entry.who == "somebody" and baseline.items == 44
    assert any("completeness" in line for line in entry.failing)


def test_a_run_that_fails_against_the_accepted_ones_is_refused(factory, root, tmp_path):
    accept_baseline(factory.make(tmp_path / "a"), "first", root=root)
    worse = factory.make(tmp_path / "b", seed=1)
    for arm in ARMS:
        change_records(worse, arm.name, wrong_text)
    with pytest.raises(UsageError, match="accuracy: eager lost"):
        accept_baseline(worse, "hurry", root=root)


def test_what_does_not_join_is_refused_by_name(factory, root, tmp_path):
    first = factory.make(tmp_path / "a")
    accept_baseline(first, "first", root=root)
    with pytest.raises(UsageError, match="has been accepted before"):
        accept_baseline(shutil.copytree(first, tmp_path / "copy"), "again", root=root)
    fewer = Factory.of(40, arms=ARMS).make(tmp_path / "b", seed=1)
    with pytest.raises(UsageError, match="40 items are not the 48"):
        accept_baseline(fewer, "fewer", root=root)
    other = Factory.of(48, arms=ARMS[:2]).make(tmp_path / "c", seed=2)
    with pytest.raises(UsageError, match="arms eager, graph are not eager, graph, mtp2"):
        accept_baseline(other, "other", root=root)
    change_json(other / "run.json", lambda old: {**old, "model_hash": "f" * 16})
    with pytest.raises(UsageError, match="another model"):
        accept_baseline(other, "model", root=root)
    with pytest.raises(UsageError, match="reason"):
        accept_baseline(other, " ", root=root)
    accept_baseline(other, "model", root=root, replace=True)
    _, baseline = accepted(root)
    assert len(baseline.runs) == 1 and baseline.history[-1].replaced
    assert baseline.history[-1].old["mtp2"] > 0.8


def test_diff_names_the_flipped_items(factory, root, tmp_path):
    accept_baseline(factory.make(tmp_path / "a"), "first", root=root)
    folder = factory.make(tmp_path / "b", seed=1)
    lines = rows(folder / "graph" / "records.jsonl")
    lost = next(row["item_id"] for row in lines if row["outcome"] == "correct")
    change_records(folder, "graph", lambda r: wrong_text(r) if r["item_id"] == lost else r)
    path, _ = accepted(root)
    flips = diff_baseline(folder, baseline=str(path)).as_json()["flips"]
    assert {one["arm"]: one["lost"] for one in flips} == {"eager": [], "graph": [lost], "mtp2": []}
    with pytest.raises(UsageError, match="no baseline with answers"):
        diff_baseline(folder, root=tmp_path / "none")


@pytest.mark.parametrize("how", ["missing", "torn", "row", "field"])
def test_damaged_answers_are_a_usage_error(factory, root, tmp_path, how):
    folder = factory.make(tmp_path / "a")
    accept_baseline(folder, "first", root=root)
    path, _ = accepted(root)
    answers = path.with_name("float32.answers.jsonl.gz")
    lines = gzip.decompress(answers.read_bytes()).splitlines(keepends=True)
    if how == "missing":
        answers.unlink()
    elif how == "torn":
        answers.write_bytes(answers.read_bytes()[:200])
    elif how == "row":
        answers.write_bytes(gzip.compress(b"".join(lines[1:])))
    else:
        row = json.loads(lines[0])
        row["arms"]["eager"] = []
        answers.write_bytes(gzip.compress(json.dumps(row).encode() + b"\n" + b"".join(lines[1:])))
    with pytest.raises(UsageError, match="answers"):
        judge(folder, str(path))


PUBLISHED = {
    "kind": "published",
    "schema": 1,
    "suite": "made",
    "dtype": "float32",
    "source": "somebody's report",
    "hardware": "4x something",
    "items": 1319,
    "note": "Protocol unknown.",
    "arms": {
        "eager": {"accuracy": 0.9113, "seconds": None, "acceptance": None},
        "mtp5": {"accuracy": 0.9174, "seconds": 153.1, "acceptance": 0.627},
    },
}


def test_published_figures_are_shown_and_never_a_reason(factory, root, tmp_path):
    path = root / "made" / "float32.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(PUBLISHED))
    folder = factory.make(tmp_path / "a")
    for arm in ARMS:
        change_records(folder, arm.name, wrong_text)
    verdict = judge(folder, str(path))
    assert verdict.checks["baseline"] == "skipped"
    assert verdict.checks["accuracy"] == "pass"
    assert [one.arm for one in verdict.advisories] == ["eager", "mtp5"]
    assert verdict.advisories[0].published_accuracy == 0.9113
    assert show_baseline("made", root=root).as_json()["published"]["items"] == 1319
    with pytest.raises(UsageError, match="published figures"):
        accept_baseline(folder, "over it", root=root, force=True)


def test_show_needs_one_baseline(root):
    with pytest.raises(UsageError, match="which baseline"):
        show_baseline("made", root=root)


def test_collapse_rule_of_the_runner(factory, tmp_path):
    view = load_run(factory.make(tmp_path / "a"))
    stop = collapse_rule(from_run(view, view.ids, Policy().equality), Policy())
    folder = tmp_path / "a"
    change_records(folder, "mtp2", wrong_text)
    from evalsuite.storage import read_records

    broken, whole = read_records(folder, "mtp2"), read_records(folder, "eager")
    assert stop("mtp2", broken[:31]) is None
    assert "0 of the first 32 right" in (stop("mtp2", broken[:32]) or "")
    assert stop("eager", whole) is None
    assert stop("other", broken) is None


# comparing two runs


def test_compare_finds_what_the_second_run_lost(factory, tmp_path):
    a, b = factory.make(tmp_path / "a"), factory.make(tmp_path / "b", seed=1)
    assert compare_runs(a, b).exit_code == 0
    change_records(b, "mtp2", wrong_text)
    found = compare_runs(a, b)
    assert found.exit_code == 1
    assert {f.arm for f in found.verdict.reasons() if f.check == "accuracy"} == {"mtp2"}
    assert found.as_json()["items"] == 48
    assert compare_runs(b, a).exit_code == 0


def test_compare_pairs_the_common_items_alone(factory, tmp_path):
    a = factory.make(tmp_path / "a")
    b = Factory.of(60, arms=ARMS[:2]).make(tmp_path / "b", seed=1)
    change_json(b / "run.json", lambda old: {**old, "model_hash": "f" * 16, "report_only": True})
    found = compare_runs(a, b)
    assert (found.exit_code, found.items, found.left_out) == (0, 48, 12)
    assert found.changed == [f"model_hash: 0123456789abcdef in A, {'f' * 16} in B"]


def test_compare_refuses_what_cannot_be_paired(factory, tmp_path):
    class Longer(Factory):
        def protocol(self):
            return msgspec.structs.replace(super().protocol(), max_tokens=128)

    a = factory.make(tmp_path / "a")
    with pytest.raises(UsageError, match=r"another protocol than .*\n  protocol.max_tokens"):
        compare_runs(a, Longer.of(48, arms=ARMS).make(tmp_path / "b"))
    lacking = factory.make(tmp_path / "c", seed=2)
    path = lacking / "graph" / "records.jsonl"
    write_rows(path, rows(path)[:-1])
    with pytest.raises(UsageError, match="cannot be compared with: graph lacks answers"):
        compare_runs(lacking, a)
    assert compare_runs(a, lacking).exit_code == 1


# power


def test_power_statement():
    found = power_statement(1319, 0.027)
    assert 0.02 < found.one_arm < 0.03
    assert found.margin_bound < found.margin
    assert "1319 items" in found.sentence()
    assert power_statement(1319, 0.027, runs=3).one_arm < found.one_arm
    assert "cannot be shown" in power_statement(100, 0.05).sentence()
    for bad in ({"n": 0, "flips": 0.1}, {"n": 10, "flips": -0.1}, {"n": 10, "flips": 1.5}):
        with pytest.raises(UsageError, match="is not between"):
            power_statement(**bad)
