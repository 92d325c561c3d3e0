"""Run, judge, report: the steps of `evalsuite run` joined."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import RenderableType

from evalsuite.errors import EXIT_INCOMPLETE, EXIT_PASS
from evalsuite.features import feature
from evalsuite.launch import Launch, launch
from evalsuite.progress import summary_table
from evalsuite.runner import Executed
from evalsuite.suite import Suite, resolve_suite
from evalsuite.summary import ArmSummary, as_json, summarize


class Shown(Protocol):
    """What a command has to show."""

    @property
    def exit_code(self) -> int:
        """The exit code."""

    def as_json(self) -> dict[str, Any]:
        """The one object of `--json`."""

    def renderables(self) -> list[RenderableType]:
        """What a person reads."""


@dataclass(frozen=True)
class RunResult:
    """A run, its figures by arm, and its verdict where it was judged."""

    executed: Executed
    summaries: list[ArmSummary]
    judged: Shown | None

    @property
    def exit_code(self) -> int:
        """The verdict's, and 3 where an arm failed that the verdict lets pass."""
        code = EXIT_PASS if self.judged is None else self.judged.exit_code
        unfinished = bool(self.executed.failed or (self.judged is None and self.executed.stopped))
        return EXIT_INCOMPLETE if code == EXIT_PASS and unfinished else code

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {
            "run": str(self.executed.folder),
            "exit_code": self.exit_code,
            "arms": as_json(self.summaries),
            "failed": self.executed.failed,
            "stopped": self.executed.stopped,
            "verdict": None if self.judged is None else self.judged.as_json(),
        }

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        shown: list[RenderableType] = [summary_table(self.summaries)]
        if self.judged is not None:
            shown += self.judged.renderables()
            shown.append(f"report: {self.executed.folder / 'report.html'}")
        return [*shown, f"run: {self.executed.folder}"]


def run_and_judge(asked: Launch, *, baseline: str | None, judged: bool) -> RunResult:
    """Execute a run and, unless told not to, judge it and write its reports.

    `baseline` is `auto`, `none`, a file, or None for what the suite says.
    """
    suite = resolve_suite(asked.suite, asked.overrides)
    if not judged:
        executed = _execute(asked, suite, None)
        return RunResult(executed, summarize(executed.folder), None)
    # The statistics take a second to import, which recording alone can do without.
    from evalsuite.judge import judge_run

    against = baseline or suite.baseline
    executed = _execute(asked, suite, against)
    result = judge_run(executed.folder, baseline=against)
    report(executed.folder, against)
    return RunResult(executed, summarize(executed.folder), result)


def _execute(asked: Launch, suite: Suite, against: str | None) -> Executed:
    """Run the arms; `against` is the baseline by which collapsed ones are stopped, if any."""
    if asked.executor == "ray":
        on_ray = feature("executors.ray_cluster", "run_on_ray", "run --executor ray")
        executed: Executed = on_ray(asked, suite, against)
        return executed
    if against is None:
        return launch(asked, suite)
    from evalsuite.abort import stop_rule

    return launch(asked, suite, partial(stop_rule, baseline=against))


def report(folder: Path, baseline: str) -> None:
    """Write the reports of a run that was judged against `baseline`."""
    feature("report", "write_reports", "run")(folder, baseline=baseline)
