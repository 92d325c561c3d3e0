"""Run, judge, report: the steps of `evalsuite run` joined."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from evalsuite.errors import EXIT_INCOMPLETE, EXIT_PASS
from evalsuite.launch import Launch, launch
from evalsuite.progress import summary_table
from evalsuite.runner import Executed
from evalsuite.summary import ArmSummary, as_json, summarize


@dataclass(frozen=True)
class RunResult:
    """What a command has to show, and its exit code."""

    folder: Path
    summaries: list[ArmSummary]
    failed: dict[str, str]
    stopped: dict[str, str]
    exit_code: int

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {
            "run": str(self.folder),
            "exit_code": self.exit_code,
            "arms": as_json(self.summaries),
            "failed": self.failed,
            "stopped": self.stopped,
        }

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        return [summary_table(self.summaries), f"run: {self.folder}"]


def run_and_judge(asked: Launch, *, baseline: str | None, judged: bool) -> RunResult:
    """Execute a run and, unless told not to, judge it and write its reports."""
    _, executed = launch(asked)
    return RunResult(
        folder=executed.folder,
        summaries=summarize(executed.folder),
        failed=executed.failed,
        stopped=executed.stopped,
        exit_code=_exit_code(executed),
    )


def _exit_code(executed: Executed) -> int:
    return EXIT_INCOMPLETE if executed.failed or executed.stopped else EXIT_PASS
