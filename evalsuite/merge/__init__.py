"""Joining runs: the shards of one draw, arms that ran apart, repeats that ran apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from evalsuite.errors import EXIT_PASS
from evalsuite.merge.agreement import common_description
from evalsuite.merge.grid import lay_out
from evalsuite.merge.joining import write_joined
from evalsuite.merge.parts import read_part
from evalsuite.records import Run

__all__ = ["Merged", "merge_runs"]


@dataclass(frozen=True)
class Merged:
    """The joined run."""

    folder: Path
    run: Run
    parts: int

    @property
    def exit_code(self) -> int:
        """Always 0: whatever is wrong was raised."""
        return EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        plan = self.run.plan
        return {
            "run": str(self.folder),
            "exit_code": self.exit_code,
            "shards": self.parts,
            "arms": [arm.name for arm in plan.arms],
            "items": len(plan.items),
            "repeats": plan.repeats,
        }

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        plan = self.run.plan
        told = f"{len(plan.arms)} arms, {len(plan.items)} items, {plan.repeats} repeats"
        return [f"joined {self.parts} runs: {told}", f"run: {self.folder}"]


def merge_runs(
    folders: Sequence[Path],
    out: Path,
    *,
    as_repeats: bool = False,
    mixed_hardware: bool = False,
    partial: bool = False,
) -> Merged:
    """Join the runs at `folders` into a new run at `out`.

    Every arm and item must be in exactly one of them; with `as_repeats` the runs that hold the same
    ones are further repeats. With `mixed_hardware` machines may differ, and the joined run then
    belongs to no machine's class. With `partial` arms that stopped early are joined as they are,
    for the judge to see. Raises UsageError for differing descriptions, overlaps, gaps, damage and
    an `out` that is there already; nothing is written then.
    """
    parts = [read_part(folder, partial) for folder in folders]
    description = common_description(parts, mixed_hardware, as_repeats)
    layout = lay_out(parts, as_repeats)
    run = write_joined(parts, layout, description, out)
    return Merged(out, run, len(parts))
