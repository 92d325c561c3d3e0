"""Reading a run that is to be joined with others: whole, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evalsuite.errors import DamagedRun, UsageError
from evalsuite.records import Evidence, Item, Record, Run
from evalsuite.runload import load_run
from evalsuite.runview import ABSENT, ArmView
from evalsuite.storage import read_records


@dataclass(frozen=True)
class PartArm:
    """One arm of a part; no evidence where the arm was not run to its end."""

    records: list[Record]
    evidence: Evidence | None
    log: bytes


@dataclass(frozen=True)
class Part:
    """One run to be joined: `items` by id in the plan's order, `arms` by name."""

    folder: Path
    run: Run
    items: Mapping[str, Item]
    arms: Mapping[str, PartArm]


def read_part(folder: Path, partial: bool) -> Part:
    """Read one run with everything in it.

    Raises UsageError for damage, and unless `partial` for an arm that was not run to its end or
    lacks answers.
    """
    try:
        view = load_run(folder)
        arms = {name: _read_arm(folder, arm, partial) for name, arm in view.arms.items()}
    except DamagedRun as problem:
        raise UsageError(
            problem.message, file=problem.file, line=problem.line, field=problem.field
        ) from None
    return Part(folder, view.run, {item.item_id: item for item in view.items}, arms)


def _read_arm(folder: Path, arm: ArmView, partial: bool) -> PartArm:
    for problem in arm.problems:
        if not (partial and problem.kind == "unfinished"):
            raise UsageError(problem.message, file=folder)
    if not partial and not arm.complete:
        had = int((arm.outcome != ABSENT).sum())
        message = f"{arm.name} has {had} of {arm.outcome.size} planned answers"
        raise UsageError(message, file=folder)
    own = folder / arm.name
    records = read_records(folder, arm.name) if (own / "records.jsonl").exists() else []
    log = own / "engine.log"
    return PartArm(records, arm.evidence, log.read_bytes() if log.exists() else b"")
