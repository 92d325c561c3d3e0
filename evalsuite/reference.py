"""What a run is held against: the answers of accepted runs, or of another run, item by item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evalsuite.baseline_file import (
    Baseline,
    Drafts,
    HardwareClass,
    HardwareRun,
    ItemAnswers,
    Shares,
)
from evalsuite.runview import CODE, Bools, Int8, RunView
from evalsuite.walls import arm_seconds, ratios_in


@dataclass(frozen=True)
class ReferenceArm:
    """One arm: `outcome` codes and flags of shape (units, items), aligned to the run judged.

    `high` and `low` tell where a rule of that confidence saw something; `shares` and `drafts` are
    pooled over runs, None where they are not known.
    """

    outcome: Int8
    high: Int8
    low: Int8
    shares: Shares | None
    drafts: Drafts | None
    accuracy: float

    @property
    def correct(self) -> Int8:
        """1 where the outcome is `correct`, else 0."""
        return self.are("correct")

    def are(self, outcome: str) -> Int8:
        """1 where the outcome is `outcome`, else 0."""
        return np.asarray(self.outcome == CODE[outcome]).astype(np.int8)


@dataclass(frozen=True)
class Reference:
    """Accepted answers aligned to a run. `known` marks the run's items that have answers here."""

    name: str
    units: int
    arms: Mapping[str, ReferenceArm]
    known: Bools
    hardware: Mapping[str, HardwareClass] = field(default_factory=dict)


def from_baseline(
    path: Path, baseline: Baseline, answers: Mapping[str, ItemAnswers], ids: Sequence[str]
) -> Reference:
    """Align a baseline to the items `ids`; unknown ones get no answer (see `known`)."""
    units = sum(run.repeats for run in baseline.runs)
    known = np.array([one in answers for one in ids], dtype=bool)
    arms = {
        name: _baseline_arm(name, baseline, answers, ids, units) for name in baseline.runs[0].arms
    }
    return Reference(path.stem, units, arms, known, baseline.hardware)


def from_run(view: RunView, ids: Sequence[str], margin: float) -> Reference:
    """Make a reference of the complete arms of a run, aligned to `ids`, all of which it holds.

    `margin` is the margin above which a divergence is large.
    """
    index = {one: at for at, one in enumerate(view.ids)}
    columns = [index[one] for one in ids]
    arms = {}
    for name, arm in view.arms.items():
        if not arm.complete:
            continue
        arms[name] = ReferenceArm(
            outcome=arm.outcome[:, columns],
            high=arm.flagged(True)[:, columns],
            low=arm.flagged(False)[:, columns],
            shares=shares_of(view, name, margin),
            drafts=drafts_of(view, name),
            accuracy=float(arm.correct.mean()),
        )
    known = np.ones(len(columns), dtype=bool)
    hardware = {view.hardware_class: HardwareClass(routes=routes_of(view), runs=[times_of(view)])}
    return Reference(view.folder.name, view.run.plan.repeats, arms, known, hardware)


def shares_of(view: RunView, name: str, margin: float) -> Shares | None:
    """Count how an arm's answers differ from eager's; None where there is no eager arm."""
    arm = view.arms[name]
    texts = int((arm.same_text >= 0).sum())
    if texts == 0:
        return None
    diverged = arm.divergence >= 0
    return Shares(
        margin=margin,
        compared=int((arm.divergence >= -1).sum()),
        diverged=int(diverged.sum()),
        large=int((diverged & (np.nan_to_num(arm.margin) > margin)).sum()),
        texts=texts,
        different=int((arm.same_text == 0).sum()),
    )


def drafts_of(view: RunView, name: str) -> Drafts | None:
    """Return the acceptance that an arm's evidence tells, if it does."""
    evidence = view.arms[name].evidence
    if evidence is None or not evidence.drafts or evidence.accepted_per_position is None:
        return None
    return Drafts(drafts=evidence.drafts, accepted=list(evidence.accepted_per_position))


def routes_of(view: RunView) -> dict[str, dict[str, str]]:
    """Return the kernel routes by arm and row kind, of the arms that tell them."""
    return {
        name: dict(arm.evidence.routes)
        for name, arm in view.arms.items()
        if arm.evidence is not None and arm.evidence.routes is not None
    }


def times_of(view: RunView) -> HardwareRun:
    """Return seconds and ratios by arm."""
    seconds = {name: arm_seconds(arm) for name, arm in view.arms.items()}
    return HardwareRun(
        answers=view.run.plan.repeats * len(view.ids),
        concurrency=view.run.engine.concurrency,
        seconds={name: value for name, value in seconds.items() if value > 0.0},
        ratios={name: found.ratio for name, found in ratios_in(view).items()},
    )


def pooled_drafts(parts: Sequence[Drafts | None]) -> Drafts | None:
    """Add up acceptance over runs; None where no run tells it."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    length = max(len(part.accepted) for part in known)
    padded = [part.accepted + [0] * (length - len(part.accepted)) for part in known]
    return Drafts(
        drafts=sum(part.drafts for part in known),
        accepted=[sum(column) for column in zip(*padded, strict=True)],
    )


def pooled_shares(parts: Sequence[Shares | None]) -> Shares | None:
    """Add up shares over runs that count the same margins as the last; None where none tells."""
    known = [part for part in parts if part is not None]
    known = [part for part in known if part.margin == known[-1].margin]
    if not known:
        return None
    names = [name for name in Shares.__struct_fields__ if name != "margin"]
    sums = {name: sum(getattr(part, name) for part in known) for name in names}
    return Shares(margin=known[-1].margin, **sums)


def _baseline_arm(
    name: str,
    baseline: Baseline,
    answers: Mapping[str, ItemAnswers],
    ids: Sequence[str],
    units: int,
) -> ReferenceArm:
    outcome = np.full((units, len(ids)), -1, np.int8)
    flags = np.zeros((2, units, len(ids)), np.int8)
    for column, one in enumerate(ids):
        row = answers.get(one)
        for unit, cell in enumerate(row.arms[name] if row is not None else []):
            outcome[unit, column] = CODE[cell.outcome]
            if cell.confidence is not None:
                flags[int(cell.confidence == "low"), unit, column] = 1
    figures = [run.arms[name] for run in baseline.runs]
    return ReferenceArm(
        outcome=outcome,
        high=flags[0],
        low=flags[1],
        shares=pooled_shares([one.shares for one in figures]),
        drafts=pooled_drafts([one.drafts for one in figures]),
        accuracy=float(np.mean([one.accuracy for one in figures])),
    )
