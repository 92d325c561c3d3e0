"""What a run is held against: the answers of accepted runs, or of another run, item by item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from evalsuite.baseline_file import (
    Baseline,
    Cell,
    Drafts,
    Drifted,
    HardwareClass,
    ItemAnswers,
    Shares,
)
from evalsuite.counted import (
    drafts_of,
    drifted_of,
    pooled_drafts,
    pooled_drifted,
    pooled_shares,
    routes_of,
    shares_of,
    times_of,
)
from evalsuite.policy import Equality
from evalsuite.runview import ABSENT, CODE, ArmView, Bools, Floats, Int8, Ints, RunView

Number = TypeVar("Number", np.int8, np.int32, np.float64)
# Stands for the answers to an item that the baseline does not have.
_UNKNOWN = Cell(text=None, outcome="error", rule=None, confidence=None)


@dataclass(frozen=True)
class ReferenceArm:
    """One arm: `outcome` codes and flags of shape (units, items), aligned to the run judged.

    `high` and `low` tell where a rule of that confidence saw something; `shares` and `drafts` are
    pooled over runs, None where they are not known. `texts`, `mean_margin` (NaN where unknown) and
    `counts`, drafted and accepted tokens (-1), are by unit and item too; None where no answer has
    them.
    """

    outcome: Int8
    high: Int8
    low: Int8
    shares: Shares | None
    drafts: Drafts | None
    accuracy: float
    texts: Sequence[Sequence[str | None]] = ()
    mean_margin: Floats | None = None
    counts: tuple[Ints, Ints] | None = None
    drifted: Drifted | None = None

    @property
    def correct(self) -> Int8:
        """1 where the outcome is `correct`, else 0."""
        return self.are("correct")

    def are(self, outcome: str) -> Int8:
        """1 where the outcome is `outcome`, else 0."""
        return np.asarray(self.outcome == CODE[outcome]).astype(np.int8)

    def equal_texts(self, arm: ArmView) -> Iterator[Bools]:
        """For each unit, where an arm's answers (repeats, items) have its text."""
        texts = np.array(arm.texts, object)
        for row in self.texts:
            yield np.asarray(texts == np.array(row, object))


@dataclass(frozen=True)
class Reference:
    """Accepted answers aligned to a run. `known` marks the run's items that have answers here;
    `dtype` and `model_hash` tell whether numbers may be compared and not only answers."""

    name: str
    units: int
    arms: Mapping[str, ReferenceArm]
    known: Bools
    hardware: Mapping[str, HardwareClass] = field(default_factory=dict)
    dtype: str | None = None
    model_hash: str | None = None

    def same_numbers(self, run: RunView) -> bool:
        """Whether the run was made with the same weights in the same type."""
        return (self.dtype, self.model_hash) == (run.run.dtype, run.run.model_hash)


def accepted_arm(reference: Reference | None, name: str) -> ReferenceArm | None:
    """Return what is accepted of an arm; None without a reference, or where it lacks the arm."""
    return None if reference is None else reference.arms.get(name)


def from_baseline(
    path: Path, baseline: Baseline, answers: Mapping[str, ItemAnswers], ids: Sequence[str]
) -> Reference:
    """Align a baseline to the items `ids`; unknown ones get no answer (see `known`)."""
    units = sum(run.repeats for run in baseline.runs)
    known = np.array([one in answers for one in ids], dtype=bool)
    arms = {
        name: _baseline_arm(name, baseline, answers, ids, units) for name in baseline.runs[0].arms
    }
    made = baseline.dtype, baseline.model_hash
    return Reference(path.stem, units, arms, known, baseline.hardware, *made)


def from_run(view: RunView, ids: Sequence[str], limits: Equality) -> Reference:
    """Make a reference of the complete arms of a run, aligned to `ids`, all of which it holds.

    `limits` say what a large divergence and a drift are.
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
            shares=shares_of(view, name, limits.large),
            drafts=drafts_of(view, name),
            accuracy=float(arm.correct.mean()),
            texts=[[row[column] for column in columns] for row in arm.texts],
            mean_margin=known_values(arm.mean_margin[:, columns]),
            counts=known_counts(arm.drafted[:, columns], arm.accepted[:, columns]),
            drifted=drifted_of(arm, limits.loose_drift),
        )
    known = np.ones(len(columns), dtype=bool)
    hardware = {view.hardware_class: HardwareClass(routes=routes_of(view), runs=[times_of(view)])}
    made = view.run.dtype, view.run.model_hash
    return Reference(view.folder.name, view.run.plan.repeats, arms, known, hardware, *made)


def known_values(values: Floats) -> Floats | None:
    """Return `values`, or None where none of them is known."""
    return None if np.isnan(values).all() else values


def known_counts(drafted: Ints, accepted: Ints) -> tuple[Ints, Ints] | None:
    """Return both counts, or None where no answer has them."""
    return (drafted, accepted) if ((drafted >= 0) & (accepted >= 0)).any() else None


def _baseline_arm(
    name: str,
    baseline: Baseline,
    answers: Mapping[str, ItemAnswers],
    ids: Sequence[str],
    units: int,
) -> ReferenceArm:
    nothing = [_UNKNOWN] * units
    rows = [answers.get(one) for one in ids]
    # Of 100,000 items every call on a cell would count, so that each field is read in one sweep.
    flat = [cell for row in rows for cell in (nothing if row is None else row.arms[name])]

    def shaped(values: Sequence[object], dtype: type[Number]) -> npt.NDArray[Number]:
        return np.array(values, dtype).reshape(len(ids), units).T

    outcome = shaped([CODE[cell.outcome] for cell in flat], np.int8)
    outcome[:, [row is None for row in rows]] = ABSENT
    drafted = [-1 if cell.drafted is None else cell.drafted for cell in flat]
    accepted = [-1 if cell.accepted is None else cell.accepted for cell in flat]
    figures = [run.arms[name] for run in baseline.runs]
    return ReferenceArm(
        outcome=outcome,
        high=shaped([cell.confidence == "high" for cell in flat], np.int8),
        low=shaped([cell.confidence == "low" for cell in flat], np.int8),
        shares=pooled_shares([one.shares for one in figures]),
        drafts=pooled_drafts([one.drafts for one in figures]),
        accuracy=float(np.mean([one.accuracy for one in figures])),
        texts=_texts(rows, name, units),
        mean_margin=known_values(shaped([cell.margin for cell in flat], np.float64)),
        counts=known_counts(shaped(drafted, np.int32), shaped(accepted, np.int32)),
        drifted=pooled_drifted([one.drifted for one in figures]),
    )


def _texts(
    rows: Sequence[ItemAnswers | None], name: str, units: int
) -> list[tuple[str | None, ...]]:
    """The accepted texts by unit and item."""
    nothing = [None] * units
    texts = [
        nothing
        if row is None
        else [None if cell.text is None else row.texts[cell.text] for cell in row.arms[name]]
        for row in rows
    ]
    return list(zip(*texts, strict=True))
