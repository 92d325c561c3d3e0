"""What a person sees of a run on standard error, and the table at its end."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Remaining
from rich.table import Table

from evalsuite.records import Record, Run
from evalsuite.summary import ArmSummary

LOG_EVERY_S = 15.0


class RunProgress:
    """A bar with rate and running accuracy by arm; on a pipe, a line every 15 seconds instead."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>7}"),
            TextColumn("{task.fields[right]:>7}"),
            Elapsed(),
            Remaining(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._answered: Counter[str] = Counter()
        self._scored: Counter[str] = Counter()
        self._right: Counter[str] = Counter()
        self._busy: Counter[str] = Counter()
        self._resumed: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}
        self._last: tuple[str, float] | None = None
        self._total = 0
        self._logged_at = time.monotonic()

    def warming(self, arm: str) -> None:
        """Say that an arm is being started and warmed up."""
        self._console.print(f"{arm}: starting", style="dim", highlight=False)

    def begin(self, run: Run, done: dict[str, int]) -> None:
        """Show a bar for each arm."""
        self._total = len(run.plan.items) * run.plan.repeats
        for arm in run.plan.arms:
            before = done.get(arm.name, 0)
            self._answered[arm.name] = self._resumed[arm.name] = before
            self._tasks[arm.name] = self._bar.add_task(
                arm.name, total=self._total, completed=before, rate="", right=""
            )
        self._console.print(
            f"{run.suite}: {len(run.plan.arms)} arms, {self._total} answers each, "
            f"{run.model or 'the embedded model'} in {run.dtype} on {run.hardware.get('name')}",
            highlight=False,
        )
        self._last = None

    def answered(self, arm: str) -> None:
        """Count an answer, and the time since the arm's previous one."""
        now = time.monotonic()
        if self._last is not None and self._last[0] == arm:
            self._seconds[arm] = self._seconds.get(arm, 0.0) + now - self._last[1]
            self._busy[arm] += 1
        self._last = (arm, now)
        self._answered[arm] += 1
        self._bar.update(self._tasks[arm], completed=self._answered[arm], rate=self._rate(arm))
        if not self._console.is_terminal and now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            self._console.print(self._line(arm), highlight=False)

    def recorded(self, record: Record) -> None:
        """Bring the running accuracy up to date."""
        self._scored[record.arm] += 1
        self._right[record.arm] += record.outcome == "correct"
        self._bar.update(self._tasks[record.arm], right=self._accuracy(record.arm))

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._console.print(text, style="yellow", highlight=False)

    def __enter__(self) -> RunProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def _rate(self, arm: str) -> str:
        seconds = self._seconds.get(arm, 0.0)
        return f"{self._busy[arm] / seconds:.1f}/s" if seconds > 0 else ""

    def _accuracy(self, arm: str) -> str:
        scored = self._scored[arm]
        return f"{self._right[arm] / scored:.1%}" if scored else ""

    def _line(self, arm: str) -> str:
        parts = [f"{self._answered[arm]}/{self._total}", self._rate(arm), self._accuracy(arm)]
        return f"{arm}: " + ", ".join(part for part in parts if part)


def summary_table(summaries: list[ArmSummary]) -> Table:
    """Return the table shown at the end of a run; it fits 100 columns while kernels are few."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("arm", no_wrap=True)
    for name in ("answered", "accuracy", "strict", "flexible", "wall s", "ratio to", "accepted",
                 "replays", "eager"):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("route", overflow="fold")
    for row in summaries:
        evidence = row.evidence
        table.add_row(
            row.arm,
            f"{row.answered}/{row.planned}",
            _percent(row.accuracy),
            _percent(row.strict),
            _percent(row.flexible),
            f"{row.wall_s:.1f}",
            "–" if row.ratio is None else f"{row.ratio_to} {row.ratio:.2f}",
            "–" if row.accepted_length is None else f"{row.accepted_length:.2f}",
            _count(None if evidence is None else evidence.graph_replays),
            _count(None if evidence is None else evidence.eager_decode_steps),
            _routes(None if evidence is None else evidence.routes),
        )
    return table


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def _routes(routes: dict[str, str] | None) -> str:
    """Say which kernel rows went to: its name alone where one took them all."""
    if routes is None:
        return "?"
    kinds: dict[str, list[str]] = {}
    for kind, name in routes.items():
        kinds.setdefault(name, []).append(kind)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{', '.join(sorted(of))}: {name}" for name, of in sorted(kinds.items()))
