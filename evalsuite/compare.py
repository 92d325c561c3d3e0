"""Any two runs, paired: the second is judged as if the first were its baseline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType

from evalsuite.baseline_choice import Chosen
from evalsuite.errors import UsageError
from evalsuite.judge import verdict_on
from evalsuite.policy import policy_for
from evalsuite.reference import from_run
from evalsuite.runload import load_run
from evalsuite.runview import RunView, restricted
from evalsuite.show import table_of, verdict_renderables
from evalsuite.verdict import Verdict, as_json


@dataclass(frozen=True)
class Comparison:
    """Run B against run A, over the items that both hold."""

    a: Path
    b: Path
    items: int
    left_out: int
    changed: list[str]
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        """0 where B is no worse, 1 where it is, 3 where either run is not whole."""
        return self.verdict.exit_code

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {
            "a": str(self.a),
            "b": str(self.b),
            "items": self.items,
            "left_out": self.left_out,
            "changed": self.changed,
            **as_json(self.verdict),
        }

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        arms = [
            [
                arm.arm,
                _percent(arm.baseline_accuracy),
                _percent(arm.accuracy),
                str(next((len(f.lost) for f in self.verdict.flips if f.arm == arm.arm), "-")),
                str(next((len(f.gained) for f in self.verdict.flips if f.arm == arm.arm), "-")),
            ]
            for arm in self.verdict.arms
        ]
        lines = [f"{self.items} items in both runs, {self.left_out} in one only"]
        lines += [f"differs: {line}" for line in self.changed]
        table = table_of(["arm", "A", "B", "lost", "gained"], arms)
        return [table, *lines, *verdict_renderables(self.verdict)]


def compare_runs(a: Path, b: Path, *, policy: Path | None = None) -> Comparison:
    """Compare run `b` with run `a`: every check, with `a` in the baseline's place.

    Raises UsageError where the two were made under different protocols or share no item or arm,
    DamagedRun where one cannot be read.
    """
    first, second = load_run(a), load_run(b)
    differences = second.run.protocol.differences(first.run.protocol)
    if differences:
        listed = "\n  ".join(differences)
        raise UsageError(f"was made under another protocol than {a}:\n  {listed}", file=b)
    held = set(first.ids)
    ids = [one for one in second.ids if one in held]
    if not ids or not set(first.arms) & set(second.arms):
        raise UsageError(f"shares no item or no arm with {a}", file=b)
    limits = policy_for(second.run, policy, b)
    whole = restricted(first, ids)
    _require_whole(whole, second, a)
    reference = from_run(whole, ids, limits.equality)
    verdict = verdict_on(restricted(second, ids), Chosen(reference=reference), limits)
    # Report-only is about a suite's own baseline; who compares two runs wants to know.
    verdict = msgspec.structs.replace(verdict, report_only=False, exit_code=_exit_code(verdict))
    left_out = len(held) + len(second.ids) - 2 * len(ids)
    return Comparison(a, b, len(ids), left_out, _changed(first, second), verdict)


def _require_whole(first: RunView, second: RunView, folder: Path) -> None:
    for name in second.arms:
        arm = first.arms.get(name)
        if arm is None:
            continue
        problem = arm.problems[0].message if arm.problems else None
        if problem is None and not arm.complete:
            problem = f"{name} lacks answers"
        if problem is not None:
            raise UsageError(f"cannot be compared with: {problem}", file=folder)


def _changed(first: RunView, second: RunView) -> list[str]:
    found = []
    for field in ("model_hash", "dtype"):
        ours, theirs = getattr(second.run, field), getattr(first.run, field)
        if ours != theirs:
            found.append(f"{field}: {theirs} in A, {ours} in B")
    ours_soft, theirs_soft = second.run.software, first.run.software
    for name in sorted({*ours_soft, *theirs_soft}):
        if ours_soft.get(name) != theirs_soft.get(name):
            found.append(f"{name}: {theirs_soft.get(name)} in A, {ours_soft.get(name)} in B")
    return found


def _exit_code(verdict: Verdict) -> int:
    return {"pass": 0, "fail": 1, "incomplete": 3}[verdict.verdict]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
