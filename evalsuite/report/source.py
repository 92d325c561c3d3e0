"""All that a report is made from: the run, its verdict and the baseline it was held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evalsuite.baseline_choice import Chosen, choose, mismatches
from evalsuite.baseline_file import Baseline, ItemAnswers
from evalsuite.checks import Finding, Status, worst
from evalsuite.checks.finding import ORDER
from evalsuite.judge import judge_run, read_verdict
from evalsuite.paths import BASELINES
from evalsuite.report.pool import ItemPool, pools_of
from evalsuite.runload import load_run
from evalsuite.runview import RunView
from evalsuite.verdict import Verdict


@dataclass(frozen=True)
class Source:
    """A judged run. `baseline` and `answers` are None with `no_baseline` saying why."""

    view: RunView
    verdict: Verdict
    baseline: Baseline | None
    answers: Mapping[str, ItemAnswers] = field(default_factory=dict)
    no_baseline: str | None = None

    @cached_property
    def pools(self) -> list[ItemPool]:
        """The answers by item, in the plan's order."""
        return pools_of(self.view)

    @property
    def findings(self) -> list[Finding]:
        """All findings of the verdict."""
        return self.verdict.findings

    def of(self, check: str, arm: str | None) -> list[Finding]:
        """Return what a check says of an arm, or of the run as a whole (None)."""
        return [one for one in self.findings if one.check == check and one.arm == arm]

    def status(self, arm: str, *checks: str) -> Status:
        """Return the gravest status that checks give an arm.

        A check that says nothing of an arm passes it, except where the whole run skipped it.
        """
        each = [worst(self._about(check, arm)) for check in checks]
        told = [status for status in each if status != "skipped"]
        return max(told, key=ORDER.index, default="skipped")

    def status_of_run(self, check: str) -> Status:
        """Return the gravest status that a check gives the run as a whole."""
        return worst(self.of(check, None))

    def _about(self, check: str, arm: str) -> list[Finding]:
        own = self.of(check, arm)
        if own:
            return own
        return [one for one in self.of(check, None) if one.status == "skipped"]


def load_source(folder: Path, baseline: str | None = None, root: Path = BASELINES) -> Source:
    """Read a run folder; judge it first where it has no verdict yet.

    `baseline` is `auto` (as None), `none` or a file, as for the judge. Raises UsageError for a bad
    baseline, DamagedRun where the run cannot be read at all.
    """
    view = load_run(folder)
    if (folder / "verdict.json").exists():
        verdict = read_verdict(folder)
    else:
        verdict = judge_run(folder, baseline=baseline).verdict
    # A verdict that rests on no baseline is shown without one, whatever has become of it since.
    chosen = Chosen() if verdict.baseline is None else choose(view, baseline, root)
    return attach(view, verdict, chosen)


def attach(view: RunView, verdict: Verdict, chosen: Chosen) -> Source:
    """Join a run and its verdict with the baseline, where the verdict rests on that one."""
    reason = _unfit(view, verdict, chosen)
    if reason is not None:
        return Source(view, verdict, None, no_baseline=reason)
    return Source(view, verdict, chosen.baseline, chosen.answers or {})


def _unfit(view: RunView, verdict: Verdict, chosen: Chosen) -> str | None:
    if verdict.baseline is None:
        said = [one.message for one in verdict.findings if one.check == "baseline"]
        return said[0] if said else "judged without a baseline"
    found = chosen.baseline
    if found is None or chosen.path is None or chosen.path.stem != verdict.baseline:
        return (
            f"judged against {verdict.baseline}, which is not at hand now: name it with --baseline"
        )
    units = sum(run.repeats for run in found.runs)
    if mismatches(view.run, found) or units != verdict.baseline_runs:
        return (
            f"the baseline {verdict.baseline} has changed since the run was judged: judge it again"
        )
    return None
