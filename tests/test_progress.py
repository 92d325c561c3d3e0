"""What a person sees of a run."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import msgspec
import pytest
from fake_engine import FakeEngine
from rich.console import Console

from evalsuite.harness import HarnessTask, select
from evalsuite.progress import RunProgress, summary_table
from evalsuite.runner import execute
from evalsuite.storage import read_evidence
from evalsuite.suite import Suite
from evalsuite.summary import summarize


def run(folder: Path, task: HarnessTask, suite: Suite, console: Console) -> str:
    """Run the fake suite and return what its progress showed."""
    with RunProgress(console) as progress:
        execute(
            suite, task, select(task.items, 24), FakeEngine({"accuracy": 0.5}), folder,
            mode="new", watcher=progress,
        )  # fmt: skip
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_terminal_sees_a_bar_with_rate_and_running_accuracy_for_each_arm(
    tmp_path: Path, gsm_mini_task: HarnessTask, fake_suite: Suite
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    shown = run(tmp_path / "r", gsm_mini_task, fake_suite, console)
    accuracy = summarize(tmp_path / "r")[0].accuracy
    for arm in fake_suite.arms:
        assert arm in shown
    assert "24/24" in shown
    assert "/s" in shown
    assert f"{accuracy:.1%}" in shown


def test_a_pipe_sees_lines_and_no_control_characters(
    tmp_path: Path, gsm_mini_task: HarnessTask, fake_suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalsuite.progress.LOG_EVERY_S", 0.0)
    shown = run(tmp_path / "r", gsm_mini_task, fake_suite, Console(file=io.StringIO(), width=100))
    assert "\x1b" not in shown
    assert "eager: 24/24, " in shown


def test_the_table_fits_100_columns_and_says_what_was_reached(
    tmp_path: Path, gsm_mini_task: HarnessTask, fake_suite: Suite
) -> None:
    run(tmp_path / "r", gsm_mini_task, fake_suite, Console(file=io.StringIO()))
    summaries = summarize(tmp_path / "r")
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(summary_table(summaries))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 1 + len(fake_suite.arms)
    assert [line.split()[0] for line in lines[1:]] == list(fake_suite.arms)
    assert all(line.rstrip().endswith("dense") for line in lines[1:])
    assert "graph 1." in lines[3] or "graph 0." in lines[3]


def test_rows_of_several_kernels_and_missing_evidence_are_told(
    tmp_path: Path, gsm_mini_task: HarnessTask, fake_suite: Suite
) -> None:
    run(tmp_path / "r", gsm_mini_task, fake_suite, Console(file=io.StringIO()))
    first, second, third = summarize(tmp_path / "r")
    evidence = read_evidence(tmp_path / "r", "mtp2")
    mixed = msgspec.structs.replace(evidence, routes={"prefill": "a", "verify:3": "b"})
    rows = [first, dataclasses.replace(second, evidence=None),
            dataclasses.replace(third, evidence=mixed)]  # fmt: skip
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(summary_table(rows))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "prefill: a; verify:3: b" in shown
    assert shown.splitlines()[2].rstrip().endswith("?")
