"""Showing a baseline, accepted or published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType

from evalsuite.baseline_file import (
    AcceptedRun,
    ArmFigures,
    Baseline,
    ItemAnswers,
    Published,
    PublishedArm,
    read_answers,
    read_baseline,
)
from evalsuite.errors import EXIT_PASS, UsageError
from evalsuite.paths import BASELINES
from evalsuite.show import table_of
from evalsuite.stats import flip_rate
from evalsuite.verdict import Flips


@dataclass(frozen=True)
class Shown:
    """What a baseline command has to show; its exit code is 0."""

    data: dict[str, Any]
    parts: list[RenderableType]
    exit_code: int = EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return self.data

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        return self.parts


def show_baseline(name: str, *, root: Path = BASELINES) -> Shown:
    """Show a baseline: a file, `<suite>/<dtype>`, or a suite with one dtype.

    Raises UsageError where there is none, or more than one.
    """
    path = _named(name, root)
    found = read_baseline(path)
    if isinstance(found, Published):
        return _published(path, found)
    return described(path, found, list(read_answers(path, found).values()), str(path))


def accuracies(runs: Sequence[AcceptedRun]) -> dict[str, float]:
    """Return the mean accuracy of each arm over runs."""
    arms: dict[str, list[ArmFigures]] = {}
    for one in runs:
        for name, figures in one.arms.items():
            arms.setdefault(name, []).append(figures)
    return {n: sum(f.accuracy for f in figures) / len(figures) for n, figures in arms.items()}


def _named(name: str, root: Path) -> Path:
    if name.endswith(".json"):
        return Path(name)
    if (root / f"{name}.json").exists():
        return root / f"{name}.json"
    there = sorted((root / name).glob("*.json"))
    if len(there) == 1:
        return there[0]
    listed = ", ".join(f"{name}/{one.stem}" for one in there) or "none"
    raise UsageError(f"which baseline? there are: {listed}", field=name)


def described(path: Path, baseline: Baseline, rows: Sequence[ItemAnswers], title: str) -> Shown:
    """Show an accepted baseline under `title`."""
    means = accuracies(baseline.runs)
    flips = {name: _flips(name, rows) for name in means}
    table = table_of(
        ["arm", "accuracy", "flip rate"],
        [
            [name, f"{value:.2%}", "-" if flips[name] is None else f"{flips[name]:.2%}"]
            for name, value in means.items()
        ],
    )
    last = baseline.history[-1]
    lines = [
        f"{len(baseline.runs)} runs over {baseline.items} items, protocol {baseline.fingerprint}",
        f"hardware: {', '.join(baseline.hardware) or 'none'}",
        f"last accepted {last.when} by {last.who}: {last.why}{' (forced)' if last.forced else ''}",
    ]
    data = {
        "path": str(path),
        "accuracy": means,
        "flip_rate": flips,
        "baseline": msgspec.to_builtins(baseline),
    }
    return Shown(data, [title, table, *lines])


def _flips(name: str, rows: Sequence[ItemAnswers]) -> float | None:
    if len(rows[0].arms[name]) < 2:
        return None
    right = [[cell.outcome == "correct" for cell in row.arms[name]] for row in rows]
    return flip_rate(list(zip(*right, strict=True)))


def _published(path: Path, found: Published) -> Shown:
    rows = [[name, *_published_cells(arm)] for name, arm in found.arms.items()]
    table = table_of(["arm", "accuracy", "wall", "acceptance"], rows)
    note = f"published figures, advisory only: {found.source} ({found.hardware}). {found.note}"
    return Shown({"path": str(path), "published": msgspec.to_builtins(found)}, [table, note])


def _published_cells(arm: PublishedArm) -> list[str]:
    return [
        "-" if arm.accuracy is None else f"{arm.accuracy:.2%}",
        "-" if arm.seconds is None else f"{arm.seconds:.1f} s",
        "-" if arm.acceptance is None else f"{arm.acceptance:.1%}",
    ]


def flip_table(flips: Sequence[Flips]) -> RenderableType:
    """Return a table of flipped items by arm."""
    rows = [
        [one.arm, str(len(one.lost)), str(len(one.gained)), " ".join(one.lost[:10])]
        for one in flips
    ]
    return table_of(["arm", "lost", "gained", "lost items"], rows)
