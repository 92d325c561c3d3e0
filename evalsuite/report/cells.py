"""Cells of the arms table: what one says, and which check colours it."""

from __future__ import annotations

from dataclasses import dataclass

from evalsuite.checks import Status
from evalsuite.report.source import Source


@dataclass(frozen=True)
class Cell:
    """One cell: `text` with a smaller `detail`, or `absent`: why there is no value.

    `values` are the raw figures behind the text, by name.
    """

    text: str
    detail: str = ""
    status: Status | None = None
    absent: str | None = None
    values: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Row:
    """One arm: its cells by the key of `COLUMNS`."""

    arm: str
    cells: dict[str, Cell]


COLUMNS: dict[str, str] = {
    "accuracy": "Accuracy (95 %)",
    "eager": "Against eager",
    "baseline": "Against baseline",
    "flips": "Flips",
    "outcomes": "Other outcomes",
    "equality": "Differs from eager",
    "wall": "Wall ratio (95 %)",
    "speed": "Tokens/s",
    "accepted": "Accepted length",
    "graphs": "Graph replays",
    "route": "Kernel routes",
}


def absent(reason: str, status: Status | None = None) -> Cell:
    """Return a cell without a value and the reason; it cannot show that a check passed."""
    return Cell("missing", absent=reason, status=None if status == "pass" else status)


def inapplicable(reason: str, status: Status | None = None) -> Cell:
    """Return a cell that can have no value, and the reason."""
    return Cell("n/a", absent=reason, status=status)


def unfinished(source: Source, arm: str) -> str | None:
    """Say that an arm was not run to its end, or None where it was."""
    view = source.view.arms[arm]
    if not view.complete and any(f.status == "fail" for f in source.of("collapse", arm)):
        return "the arm collapsed and was stopped"
    if not view.finished:
        return "the arm was not run to its end"
    return None if view.complete else "answers are missing"
