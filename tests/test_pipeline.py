"""Run and judge in one: what decides the exit code, and what is said before a run begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evalsuite.baseline import accept_baseline
from evalsuite.errors import UsageError
from evalsuite.launch import Launch
from evalsuite.pipeline import RunResult, run_and_judge
from evalsuite.storage import read_records
from evalsuite.suite import Overrides

SUITE = """\
name: fake
engine:
  kind: fake_engine:open_engine
  options: {options}
task: gsm_mini
limit: 100
arms: [eager, graph, mtp1]
{more}
"""


def run(
    folder: Path,
    name: str,
    baseline: str | None,
    *,
    more: str = "",
    judged: bool = True,
    **options: Any,
) -> RunResult:
    """Run a suite on the fake engine into `folder/name`."""
    suite = folder / "fake.yaml"
    suite.write_text(SUITE.format(options=json.dumps(options), more=more))
    asked = Launch(str(suite), Overrides(), None, folder / name, "new")
    return run_and_judge(asked, baseline=baseline, judged=judged)


@pytest.fixture
def accepted(tmp_path: Path) -> str:
    """Return the file of a baseline made from one healthy run."""
    run(tmp_path, "first", "none")
    accept_baseline(tmp_path / "first", "a healthy run", root=tmp_path / "baselines")
    return str(tmp_path / "baselines" / "fake" / "float32.json")


def test_a_healthy_run_passes_against_its_baseline(tmp_path: Path, accepted: str) -> None:
    result = run(tmp_path, "second", accepted)
    assert result.exit_code == 0
    shown = result.as_json()
    assert shown["verdict"]["verdict"] == "pass"
    assert (tmp_path / "second" / "verdict.json").exists()


def test_without_a_baseline_a_run_is_incomplete_and_says_how_to_accept_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(tmp_path, "r", None)
    assert result.exit_code == 3
    assert "no baseline for fake in float32" in capfd.readouterr().err
    told = [finding["message"] for finding in result.as_json()["verdict"]["findings"]]
    assert any("baseline accept" in message for message in told)


def test_no_baseline_by_wish_and_report_only_exit_0(tmp_path: Path) -> None:
    assert run(tmp_path, "a", "none").exit_code == 0
    assert run(tmp_path, "b", None, more="baseline: none").exit_code == 0
    assert run(tmp_path, "c", None, more="report_only: true", accuracy=0.1).exit_code == 0


def test_a_collapsed_arm_is_stopped_within_64_items_and_fails_the_run(
    tmp_path: Path, accepted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(tmp_path, "second", accepted, bad_arm="mtp1", bad_accuracy=0.1)
    assert result.exit_code == 1
    assert list(result.executed.stopped) == ["mtp1"]
    assert len(read_records(tmp_path / "second", "mtp1")) <= 64
    assert len(read_records(tmp_path / "second", "graph")) == 100
    failed = {f["check"] for f in result.as_json()["verdict"]["findings"] if f["status"] == "fail"}
    assert "collapse" in failed
    assert "mtp1 stopped after " in capfd.readouterr().err


def test_an_arm_that_was_not_run_to_its_end_is_no_pass(tmp_path: Path, accepted: str) -> None:
    assert run(tmp_path, "a", accepted, crash_arm="graph").exit_code in (1, 3)
    assert run(tmp_path, "b", None, judged=False, crash_arm="graph").exit_code == 3


@pytest.mark.parametrize(
    ("baseline", "more", "told"),
    [
        ("missing.json", "", "missing.json"),
        (None, "policy: {accuracy: {margn: 0.01}}", "margn"),
        (None, "policy: {nosuch: {}}", "nosuch"),
        (None, "unavailable: [nosuch]", "nosuch"),
    ],
)
def test_what_would_spoil_the_verdict_is_told_before_the_run(
    tmp_path: Path, baseline: str | None, more: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        run(tmp_path, "r", baseline, more=more)
    assert not (tmp_path / "r").exists()


def test_a_baseline_of_another_protocol_is_told_at_once_and_fails(
    tmp_path: Path, accepted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(tmp_path, "second", accepted, more="shots: 1")
    assert result.exit_code == 1
    assert "the baseline will not hold: " in capfd.readouterr().err
