"""The commands as a user runs them: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalsuite.cli import main
from evalsuite.harness import HarnessTask
from evalsuite.storage import read_items, read_records, read_run
from evalsuite.summary import summarize

ROOT = Path(__file__).resolve().parents[1]
SUITE = """\
name: fake
engine:
  kind: fake_engine:open_engine
  options: {{accuracy: 0.9{options}}}
task: gsm_mini
limit: {limit}
arms: [eager, graph, mtp1]
"""


def environment() -> dict[str, str]:
    """Return an environment in which the fake engine can be imported."""
    paths = [ROOT / "tests", ROOT, ROOT / "kernels", ROOT / "tasks"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "COLUMNS": "140"}


def command(*words: object) -> list[str]:
    """Return the command line of `evalsuite` with this interpreter."""
    return [sys.executable, "-m", "evalsuite", *map(str, words)]


def evalsuite(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `evalsuite` and return what it printed."""
    return subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(), timeout=120,
        stdin=subprocess.DEVNULL, check=False, cwd=cwd,
    )  # fmt: skip


def write_suite(folder: Path, options: str = "", limit: object = 40) -> Path:
    """Write a suite on the fake engine."""
    path = folder / "fake.yaml"
    path.write_text(SUITE.format(options=options, limit=limit))
    return path


def test_a_run_prints_its_table_and_leaves_its_folder(tmp_path: Path) -> None:
    done = evalsuite("run", write_suite(tmp_path), "--no-judge", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-fake")
    for word in ("eager", "graph", "mtp1", "40/40", "accuracy", "ratio", "replays"):
        assert word in done.stdout
    assert str(folder.name) in done.stdout
    assert "3 arms, 40 answers each" in done.stderr
    assert len(read_records(folder, "mtp1")) == 40


def test_json_is_one_object_and_nothing_else(tmp_path: Path) -> None:
    out = tmp_path / "r"
    done = evalsuite(
        "run", write_suite(tmp_path), "--no-judge", "--json", "--out", out, "--arms",
        "eager,eager-mtp1", "--limit", 10, "--repeats", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert shown["run"] == str(out)
    assert [arm["arm"] for arm in shown["arms"]] == ["eager", "eager-mtp1"]
    assert [arm["answered"] for arm in shown["arms"]] == [20, 20]
    assert shown["exit_code"] == 0
    summary = summarize(out)[0]
    assert shown["arms"][0]["accuracy"] == summary.accuracy
    assert read_run(out).plan.repeats == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "nosuch"), "no suite 'nosuch'"),
        (("run", "--limit", "0"), "--limit"),
        (("run", "--limit", "some"), "--limit"),
        (("run", "--arms", "eager,mtp7"), "mtp7"),
        (("run", "--arms", ""), "arms"),
        (("run", "--engine", "nosuch"), "engine"),
        (("run", "--engine", "nosuch_module:open_engine"), "nosuch_module"),
        (("run", "--repeats", "0"), "--repeats"),
        (("run", "--resume"), "--out"),
        (("run", "--nosuch"), "--nosuch"),
        (("nosuch",), "nosuch"),
        (("classify", "nosuch.jsonl"), "nosuch.jsonl"),
        (("doctor", "nosuch"), "no suite"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_one_clear_line(
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(list(words), prog_name="evalsuite")
    shown = capfd.readouterr()
    assert ended.value.code == 2
    assert told in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_bad_suite_is_told_by_file_line_and_key(tmp_path: Path) -> None:
    path = write_suite(tmp_path)
    path.write_text(path.read_text().replace("limit: 40", "limits: 40"))
    done = evalsuite("run", path, "--out", tmp_path / "r")
    assert done.returncode == 2
    assert f"{path}:6: limits: " in done.stderr
    assert not (tmp_path / "r").exists()


def test_an_arm_that_fails_makes_the_run_incomplete(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, ", crash_arm: graph")
    done = evalsuite("run", suite, "--no-judge", "--json", "--out", tmp_path / "r")
    assert done.returncode == 3
    assert list(json.loads(done.stdout)["failed"]) == ["graph"]
    assert "graph failed: RuntimeError: device lost" in done.stderr


def test_a_terminated_run_is_incomplete_and_can_be_resumed(tmp_path: Path) -> None:
    out = tmp_path / "r"
    words = command("run", write_suite(tmp_path), "--no-judge", "--out", out)
    slow = {**environment(), "FAKE_DELAY_S": "0.5"}
    running = subprocess.Popen(words, env=slow, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "eager" / "records.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.6)
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 3
    assert "interrupted" in told
    assert "--resume" in told
    done = evalsuite(
        "run", tmp_path / "fake.yaml", "--no-judge", "--out", out, "--resume", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert [arm["answered"] for arm in json.loads(done.stdout)["arms"]] == [40, 40, 40]


@pytest.mark.parametrize(
    ("engine", "options", "limit"),
    [("fake_engine:open_engine", "accuracy: 0.9", 150), ("mini", "", 32)],
)
def test_lm_eval_and_run_give_the_same_scores(
    tmp_path: Path, gsm_mini_task: HarnessTask, engine: str, options: str, limit: int
) -> None:
    suite = tmp_path / "both.yaml"
    suite.write_text(
        f"name: both\nengine:\n  kind: {engine}\n  options: {{{options}}}\n"
        f"task: gsm_mini\nlimit: {limit}\narms: [eager, graph, mtp1]\n"
    )
    arm = "eager" if engine == "mini" else "graph"
    done = evalsuite("run", suite, "--no-judge", "--json", "--arms", arm, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)["arms"][0]
    asked = set(read_run(tmp_path / "r").plan.items)
    rows = [n for n, entry in enumerate(gsm_mini_task.items) if entry.item.item_id in asked]
    settings = ",".join([f"engine={engine}", f"arm={arm}", *options.replace(": ", "=").split()])
    theirs = evalsuite(
        "lm-eval", "run", "--model", "evalsuite", "--tasks", "gsm_mini",
        "--model_args", settings, "--samples", json.dumps({"gsm_mini": rows}),
        "--output_path", tmp_path / "out", "--log_samples", cwd=tmp_path,
    )  # fmt: skip
    assert theirs.returncode == 0, theirs.stderr
    (results,) = (tmp_path / "out").rglob("results_*.json")
    scores = json.loads(results.read_text())["results"]["gsm_mini"]
    assert scores["exact_match,strict-match"] == pytest.approx(ours["strict"], abs=1e-12)
    assert scores["exact_match,flexible-extract"] == pytest.approx(ours["flexible"], abs=1e-12)
    assert scores["exact_match,numeric"] == pytest.approx(ours["accuracy"], abs=1e-12)
    assert 0.7 < ours["strict"] < 1
    (samples,) = (tmp_path / "out").rglob("samples_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    texts = {row["doc"]["question"]: row["resps"][0][0] for row in lines}
    questions = {item.item_id: item.question for item in read_items(tmp_path / "r")}
    assert texts == {
        questions[record.item_id]: record.text for record in read_records(tmp_path / "r", arm)
    }


def test_classify_streams_one_object_a_row(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "text": "so\\n#### 7", "gold": "7"}\n{"id": "b", "text": ""}\n')
    done = evalsuite("classify", rows)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["id"], first["outcome"], first["answer"]) == ("a", "correct", "7")
    assert second["id"] == "b"


def test_doctor_says_what_each_arm_gets(tmp_path: Path) -> None:
    done = evalsuite("doctor", write_suite(tmp_path), "--json")
    shown = json.loads(done.stdout)
    assert shown["versions"]["lm_eval"] == "0.4.13"
    assert [arm["settings"] for arm in shown["arms"]] == [
        {"graph": False, "mtp": 0},
        {"graph": True, "mtp": 0},
        {"graph": True, "mtp": 1},
    ]
    assert done.returncode == shown["exit_code"] == (2 if shown["problems"] else 0)


def test_a_fault_of_the_program_is_no_verdict(tmp_path: Path) -> None:
    """A crash is exit code 3, so that it can be taken neither for a pass nor for a fail."""
    crash = (
        "import evalsuite.pipeline as m; m.resolve_suite = None\nfrom evalsuite.cli import main\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", crash + "from evalsuite.cli import main; main(['run'])"],
        capture_output=True, text=True, env=environment(), timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 3
    assert "Traceback" in done.stderr
