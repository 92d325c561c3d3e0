"""Which baseline a run is held against, and whether the two belong together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from evalsuite.baseline_file import (
    Baseline,
    ItemAnswers,
    Published,
    read_answers,
    read_baseline,
)
from evalsuite.checks import Finding, Status
from evalsuite.checks.finding import some
from evalsuite.paths import BASELINES
from evalsuite.records import Run
from evalsuite.reference import Reference, from_baseline
from evalsuite.runview import RunView
from evalsuite.verdict import Advisory

CHECK = "baseline"


@dataclass(frozen=True)
class Chosen:
    """What was asked for and what was found.

    `reference` is set where a run stands in for a baseline. `asked_none`: the user wants none.
    """

    path: Path | None = None
    baseline: Baseline | None = None
    answers: dict[str, ItemAnswers] | None = None
    published: Published | None = None
    reference: Reference | None = None
    asked_none: bool = False
    auto: bool = False

    def advisories(self, run: RunView) -> list[Advisory]:
        """Return published figures beside the run's, arm by arm."""
        if self.published is None:
            return []
        found = []
        for name, arm in self.published.arms.items():
            ours = run.arms.get(name)
            known = ours is not None and ours.complete
            found.append(
                Advisory(
                    arm=name,
                    published_accuracy=arm.accuracy,
                    accuracy=float(ours.correct.mean()) if ours is not None and known else None,
                    published_acceptance=arm.acceptance,
                    published_seconds=arm.seconds,
                    source=self.published.source,
                )
            )
        return found


def baseline_path(run: Run, root: Path = BASELINES) -> Path:
    """Return where the baseline of a run's suite and dtype belongs."""
    return root / run.suite / f"{run.dtype}.json"


def choose(run: RunView, asked: str | None, root: Path = BASELINES) -> Chosen:
    """Return the baseline that `asked` (`auto` or None, `none`, or a file) stands for.

    Raises UsageError for a file that is missing or wrong.
    """
    if asked == "none":
        return Chosen(asked_none=True)
    auto = asked in (None, "auto")
    path = baseline_path(run.run, root) if auto else Path(str(asked))
    if auto and not path.exists():
        return Chosen(path=path, auto=True)
    found = read_baseline(path)
    if isinstance(found, Published):
        return Chosen(path=path, published=found, auto=auto)
    return Chosen(path=path, baseline=found, answers=read_answers(path, found), auto=auto)


def matched(run: RunView, chosen: Chosen) -> tuple[list[Finding], Reference | None]:
    """Return what the check `baseline` says, and the reference where the two belong together."""
    if chosen.reference is not None:
        return [_said("pass", f"held against {chosen.reference.name}")], chosen.reference
    if chosen.baseline is None or chosen.answers is None or chosen.path is None:
        return [_without(chosen)], None
    differences = mismatches(run.run, chosen.baseline)
    if differences:
        return [_said("fail", message) for message in differences], None
    unknown = [one for one in run.ids if one not in chosen.answers]
    if unknown:
        message = f"{len(unknown)} of {len(run.ids)} items are not in the baseline"
        return [_said("fail", message, some(unknown))], None
    reference = from_baseline(chosen.path, chosen.baseline, chosen.answers, run.ids)
    runs = len(chosen.baseline.runs)
    message = f"{runs} accepted runs over {chosen.baseline.items} items"
    if len(run.ids) < chosen.baseline.items:
        message += f"; this run is over {len(run.ids)} of them"
    return [_said("pass", message)], reference


def mismatches(run: Run, baseline: Baseline) -> list[str]:
    """Say why a baseline cannot stand for a run; nothing where it can."""
    found = []
    if run.fingerprint != baseline.fingerprint:
        fields = "; ".join(run.protocol.differences(baseline.protocol))
        found.append(f"the baseline was made under another protocol: {fields}")
    if run.dtype != baseline.dtype:
        found.append(f"the baseline is for {baseline.dtype}, the run is in {run.dtype}")
    if run.model_hash != baseline.model_hash:
        found.append(
            f"the baseline was made with another model: {baseline.model_hash}, the run with "
            f"{run.model_hash}"
        )
    return found


def _without(chosen: Chosen) -> Finding:
    if chosen.asked_none:
        return _said("skipped", "no baseline was asked for: arms are compared with each other only")
    if not chosen.auto:
        return _said("skipped", "the baseline holds published figures only: shown, never a reason")
    told = "only published figures" if chosen.published is not None else "no baseline"
    return Finding(
        check=CHECK,
        status="missing",
        arm=None,
        message=f"{told} for this suite and dtype; accept this run as one with "
        "`evalsuite baseline accept RUN --why …`, or judge without: --baseline none",
        incomplete=True,
    )


def _said(status: Status, message: str, examples: list[str] | None = None) -> Finding:
    return Finding(check=CHECK, status=status, arm=None, message=message, examples=examples or [])
