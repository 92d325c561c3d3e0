"""The verdict as a whole: damage, order, removal, exit codes, files, speed of reading."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_factory import Factory, arms, change_json, change_records, rows, write_rows

from evalsuite.baseline import accept_baseline
from evalsuite.errors import DamagedRun, EvalsuiteError, UsageError
from evalsuite.judge import judge, judge_run, read_verdict
from evalsuite.verdict import as_json

RELAXED = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ARMS = arms("eager", "graph", "mtp2")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of three runs and a healthy run of three arms over 48 items."""
    root = tmp_path_factory.mktemp("judge")
    factory = Factory.of(48, arms=ARMS)
    for seed in range(3):
        accept_baseline(factory.make(root / f"a{seed}", seed), "first", root=root / "baselines")
    factory.make(root / "run", seed=9)
    return root


def baseline_of(source: Path) -> str:
    return str(source / "baselines" / "made" / "float32.json")


@pytest.fixture
def run(source: Path, tmp_path: Path) -> Path:
    return shutil.copytree(source / "run", tmp_path / "run")


def wrong_text(row: dict) -> dict:
    return {**row, "text": " It is 1.\n#### 1"}


def exit_code(run: Path, baseline: str) -> int:
    try:
        return judge(run, baseline).exit_code
    except EvalsuiteError as problem:
        return problem.exit_code


def test_verdict_is_written_and_read_back(source, run):
    result = judge_run(run, baseline=baseline_of(source))
    assert result.exit_code == 0
    assert read_verdict(run) == result.verdict
    written = json.loads((run / "verdict.json").read_text())
    assert written == json.loads(json.dumps(as_json(result.verdict)))
    assert written["policy"]["accuracy"]["margin"] == 0.015
    assert result.as_json()["verdict"] == "pass"
    assert str(run) not in (run / "verdict.json").read_text()


def test_same_verdict_wherever_the_run_lies(source, run, tmp_path):
    change_records(run, "mtp2", wrong_text)
    path = run / "graph" / "records.jsonl"
    path.write_text(path.read_text()[:-9])
    moved = shutil.copytree(run, tmp_path / "elsewhere" / "again")
    assert judge(run, baseline_of(source)) == judge(moved, baseline_of(source))


# damage


FILES = [
    "run.json",
    "items.jsonl",
    *(f"{arm.name}/{name}" for arm in ARMS for name in ("records.jsonl", "evidence.json")),
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["removed", "empty", "cut", "garbage", "directory"])
def test_damaged_files_never_pass(source, run, name, how):
    path = run / name
    data = path.read_bytes()
    path.unlink()
    if how == "directory":
        path.mkdir()
    elif how != "removed":
        path.write_bytes({"empty": b"", "cut": data[: len(data) // 2], "garbage": b"\xff{"}[how])
    assert exit_code(run, baseline_of(source)) in (1, 3)
    change = exit_code(run, "none")
    assert change in (1, 3)


def test_empty_and_absent_folders(tmp_path):
    with pytest.raises(DamagedRun, match=r"run\.json: is missing"):
        judge(tmp_path, "none")
    with pytest.raises(UsageError, match="no such run folder"):
        judge(tmp_path / "nothing", "none")


def test_altered_gold_is_damage(run):
    items = rows(run / "items.jsonl")
    items[4]["gold"] = "77"
    write_rows(run / "items.jsonl", items)
    with pytest.raises(DamagedRun, match="was altered: its id does not fit"):
        judge(run, "none")


def test_items_that_are_not_the_plan(run):
    items = rows(run / "items.jsonl")
    for changed in (items[:-1], [*items, items[0]]):
        write_rows(run / "items.jsonl", changed)
        with pytest.raises(DamagedRun, match=r"items\.jsonl"):
            judge(run, "none")


# baselines that do not fit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "bfloat16"}, "the baseline is for float32, the run is in bfloat16"),
        ({"model_hash": "f" * 16}, "the baseline was made with another model"),
    ],
)
def test_baseline_of_another_kind_fails(source, run, change, words):
    change_json(run / "run.json", lambda old: {**old, **change})
    verdict = judge(run, baseline_of(source))
    assert verdict.checks["baseline"] == "fail" and verdict.exit_code == 1
    assert any(words in finding.message for finding in verdict.findings)


def test_baseline_of_another_protocol_names_the_field(source, tmp_path):
    class Longer(Factory):
        def protocol(self):
            import msgspec

            return msgspec.structs.replace(super().protocol(), max_tokens=128)

    run = Longer.of(48, arms=ARMS).make(tmp_path / "run")
    verdict = judge(run, baseline_of(source))
    (finding,) = [f for f in verdict.findings if f.check == "baseline"]
    assert finding.status == "fail"
    assert "another protocol: protocol.max_tokens: 128 != 64" in finding.message


def test_unknown_item_fails_and_a_subset_is_judged(source, tmp_path):
    run = Factory.of(40, arms=ARMS).make(tmp_path / "subset")
    verdict = judge(run, baseline_of(source))
    assert verdict.exit_code == 0
    assert "over 40 of them" in verdict.findings[0].message
    run = Factory.of(50, arms=ARMS).make(tmp_path / "more")
    verdict = judge(run, baseline_of(source))
    assert "2 of 50 items are not in the baseline" in verdict.findings[0].message
    assert verdict.exit_code == 1


def test_auto_without_a_baseline_is_incomplete(run):
    verdict = judge(run)
    assert (verdict.verdict, verdict.exit_code) == ("incomplete", 3)
    assert "evalsuite baseline accept" in verdict.findings[0].message
    assert judge(run, "none").exit_code == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "baseline cannot be read"),
        ("{", "not JSON"),
        ('{"kind": "accepted"}', "missing required field"),
        ('{"kind": "other"}', "kind"),
    ],
)
def test_bad_baseline_file_is_a_usage_error(run, tmp_path, content, words):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=words):
        judge(run, str(path))


def test_report_only_exits_zero_but_not_when_damaged(source, run):
    change_json(run / "run.json", lambda old: {**old, "report_only": True})
    change_records(run, "mtp2", wrong_text)
    verdict = judge(run, baseline_of(source))
    assert (verdict.verdict, verdict.exit_code) == ("fail", 0)
    (run / "mtp2" / "records.jsonl").write_text("{}\n")
    assert judge(run, baseline_of(source)).exit_code == 1


# policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accuracy:\n  margn: 0.01\n", r"2: accuracy\.margn"),
        ("accuracy:\n  margin: 2\n", "margin must lie between 0 and 1"),
        ("accuracy:\n  fail_level: 0.2\n", "fail_level <= warn_level"),
        ("collapse:\n  looks: [64, 32]\n", "increasing"),
        ("wall:\n  slower: 0\n", "slower must be above 0"),
        ("nothing: 1\n", "nothing"),
        ("accuracy:\n  margin: .nan\n", "margin"),
    ],
)
def test_bad_policy_names_file_and_key(run, tmp_path, text, words):
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=words) as caught:
        judge(run, "none", path)
    assert caught.value.file == path


def test_policy_of_the_suite_and_of_a_file(source, run, tmp_path):
    change_json(run / "run.json", lambda old: {**old, "policy": {"accuracy": {"margin": 0.03}}})
    assert judge(run, baseline_of(source)).policy.accuracy.margin == 0.03
    path = tmp_path / "policy.yaml"
    path.write_text("accuracy:\n  margin: 0.04\n")
    assert judge(run, baseline_of(source), path).policy.accuracy.margin == 0.04
    change_json(run / "run.json", lambda old: {**old, "policy": {"accuracy": {"margins": 1}}})
    with pytest.raises(UsageError, match=r"run\.json: policy"):
        judge(run, baseline_of(source))


def test_unknown_unavailable_check_is_refused(source, run):
    change_json(run / "run.json", lambda old: {**old, "unavailable": ["routes"]})
    with pytest.raises(UsageError, match="no check 'routes'"):
        judge(run, baseline_of(source))


def test_completeness_cannot_be_declared_unavailable(source, run):
    change_json(run / "run.json", lambda old: {**old, "unavailable": ["completeness", "route"]})
    (run / "graph" / "evidence.json").unlink()
    verdict = judge(run, baseline_of(source))
    assert (verdict.exit_code, verdict.checks["route"]) == (3, "missing")


# properties


@RELAXED
@given(st.randoms(use_true_random=False), st.booleans())
def test_order_of_records_does_not_matter(source, tmp_path_factory, random, broken):
    run = shutil.copytree(source / "run", tmp_path_factory.mktemp("order") / "run")
    if broken:
        picked = iter([random.random() < 0.3 for _ in range(48)])
        change_records(run, "mtp2", lambda row: wrong_text(row) if next(picked) else row)
    before = judge(run, baseline_of(source))
    for arm in ARMS:
        path = run / arm.name / "records.jsonl"
        lines = rows(path)
        random.shuffle(lines)
        write_rows(path, lines)
    assert judge(run, baseline_of(source)) == before


def failing_run(source: Path, root: Path, fault: str) -> Path:
    """Make a run that fails for one reason."""
    run = shutil.copytree(source / "run", root / "run")
    if fault == "accuracy":
        change_records(run, "mtp2", wrong_text)
    elif fault == "degenerate":
        first = rows(run / "mtp2" / "records.jsonl")[0]["item_id"]
        loop = {"text": " lock" * 50}
        change_records(run, "mtp2", lambda r: {**r, **loop} if r["item_id"] == first else r)
    elif fault == "divergence":
        first = rows(run / "graph" / "records.jsonl")[0]["item_id"]
        other = {"token_ids": [5, 1, 7, 9]}
        change_records(run, "graph", lambda r: {**r, **other} if r["item_id"] == first else r)
    else:
        path = run / "mtp2" / "evidence.json"
        change_json(path, lambda old: {**old, **json.loads(fault)})
    assert judge(run, baseline_of(source)).exit_code == 1
    return run


FAULTS = [
    "accuracy",
    "degenerate",
    "divergence",
    '{"graph_replays": 0}',
    '{"accepted_per_position": [100, 50]}',
    '{"drafts": 0}',
    '{"read_back": {"graph": true, "mtp": 1}}',
]


@RELAXED
@given(st.sampled_from(FAULTS), st.data())
def test_removing_anything_never_turns_fail_into_pass(source, tmp_path_factory, fault, data):
    run = failing_run(source, tmp_path_factory.mktemp("removal"), fault)
    arm = data.draw(st.sampled_from([arm.name for arm in ARMS]))
    what = data.draw(st.sampled_from(["record", "field", "null", "evidence", "evidence null"]))
    if what.startswith("evidence"):
        path = run / arm / "evidence.json"
        values = json.loads(path.read_text())
        key = data.draw(st.sampled_from(sorted(values)))
        path.write_text(json.dumps(without(values, key, what.endswith("null"))))
    else:
        path = run / arm / "records.jsonl"
        lines = rows(path)
        index = data.draw(st.integers(0, len(lines) - 1))
        if what == "record":
            del lines[index]
        else:
            key = data.draw(st.sampled_from(sorted(lines[index])))
            lines[index] = without(lines[index], key, what == "null")
        write_rows(path, lines)
    for baseline in (baseline_of(source), "none"):
        if baseline != "none" or fault not in ("accuracy", '{"accepted_per_position": [100, 50]}'):
            assert exit_code(run, baseline) in (1, 3)


def without(values: dict, key: str, null: bool) -> dict:
    return {k: None if k == key else v for k, v in values.items() if null or k != key}


@RELAXED
@given(st.sampled_from(FILES), st.text("abcxyz", min_size=1, max_size=6))
def test_unknown_fields_never_pass_in_silence(source, tmp_path_factory, name, key):
    run = shutil.copytree(source / "run", tmp_path_factory.mktemp("extra") / "run")
    path = run / name
    if name.endswith("jsonl"):
        lines = rows(path)
        lines[0][key] = 1
        write_rows(path, lines)
    else:
        change_json(path, lambda old: {**old, key: 1})
    assert exit_code(run, baseline_of(source)) in (1, 3)
