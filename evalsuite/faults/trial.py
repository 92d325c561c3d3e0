"""One fault: the arms that matter, item by item, until the verdict is certain."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalsuite.errors import EvalsuiteError
from evalsuite.faults.bench import Bench, judged, reasons_of
from evalsuite.faults.fault import Fault
from evalsuite.localise import Localisation
from evalsuite.report import headline
from evalsuite.runview import ABSENT, RunView
from evalsuite.verdict import Verdict


@dataclass(frozen=True)
class Trial:
    """What became of one fault.

    `checks` are those that failed; `expected` whether one that should is among them. `says` is the
    report's reason. `figures` has accuracy and acceptance by arm, `healthy` the same of the run
    without the fault. `blind` tells why it cannot be seen here, `problem` why it was not tried.
    """

    fault: Fault
    caught: bool
    expected: bool
    checks: tuple[str, ...]
    items: int
    seconds: float
    says: str
    figures: dict[str, Any]
    healthy: dict[str, Any]
    place: Localisation | None
    blind: str = ""
    problem: str | None = None

    @property
    def right(self) -> bool:
        """Whether the gate did what it can: caught it by the right check, or is known as blind."""
        return self.problem is None and (self.expected or (not self.caught and bool(self.blind)))

    def as_json(self) -> dict[str, Any]:
        """One row of `prove --json`."""
        fault = self.fault
        return {
            "id": fault.id,
            "family": fault.family,
            "caught": self.caught,
            "checks": list(self.checks),
            "items": self.items,
            "seconds": round(self.seconds, 1),
            "as_expected": self.right,
            "title": fault.title,
            "source": fault.source,
            "changes": fault.changes,
            "effect": fault.effect,
            "arms": list(fault.arms),
            "expected_checks": list(fault.checks),
            "conditions": str(fault.stress),
            "says": self.says,
            "blind": self.blind,
            "problem": self.problem,
            "likely_family": None if self.place is None else self.place.family,
            "otherwise": [] if self.place is None else list(self.place.otherwise),
            "localisation": None if self.place is None else self.place.sentence,
            "figures": self.figures,
            "healthy": self.healthy,
        }


def try_fault(bench: Bench, fault: Fault, folder: Path) -> Trial:
    """Run `fault` until it is caught or the items are used up."""
    begun = time.monotonic()
    try:
        return _tried(bench, fault, folder, begun)
    except (EvalsuiteError, LookupError) as problem:
        told = f"{type(problem).__name__}: {problem}"
        spent = time.monotonic() - begun
        return Trial(fault, False, False, (), 0, spent, "", {}, {}, None, problem=told)


def _tried(bench: Bench, fault: Fault, folder: Path, begun: float) -> Trial:
    healthy = bench.healthy(fault.stress)
    waited = 0.0
    with fault.active():
        engine = bench.remembering(fault.stress)
    try:
        for count in bench.stages:
            items = bench.items[:count]
            asked = time.monotonic()
            reference = healthy.reference(fault.arms, [entry.item.item_id for entry in items])
            waited += time.monotonic() - asked
            with fault.stress.active(), fault.active():
                bench.execute(engine, fault.arms, items, folder)
            fault.tamper(folder)
            view, verdict = judged(bench, folder, reference)
            reasons = reasons_of(verdict, timed="wall" in fault.checks)
            if reasons:
                break
    finally:
        engine.close()
    checks = tuple(dict.fromkeys(finding.check for finding in reasons))
    whole = healthy.view(fault.arms, count)
    return Trial(
        fault=fault,
        caught=bool(checks),
        expected=bool(set(checks) & set(fault.checks)),
        checks=checks,
        items=count,
        seconds=time.monotonic() - begun - waited,
        says=_says(verdict, fault.checks),
        figures=_figures(view),
        healthy=_figures(whole),
        place=verdict.localisation if checks else None,
        blind=fault.unseen(bench.device, view.run.dtype),
    )


def _says(verdict: Verdict, wanted: Sequence[str]) -> str:
    """The report's first reason, of a check that should fail where one does."""
    reasons = [one for one in headline.reasons_of(verdict) if one.status in ("fail", "missing")]
    reasons.sort(key=lambda reason: reason.check not in wanted)
    return f"{reasons[0].check}: {reasons[0].message}" if reasons else ""


def _figures(view: RunView) -> dict[str, Any]:
    """Accuracy, and the accepted share per draft position, by arm."""
    found: dict[str, Any] = {}
    for name, arm in view.arms.items():
        answers = int((arm.outcome != ABSENT).sum())
        evidence = arm.evidence
        accepted = None
        if evidence is not None and evidence.drafts and evidence.accepted_per_position:
            accepted = [round(n / evidence.drafts, 4) for n in evidence.accepted_per_position]
        accuracy = round(int(arm.correct.sum()) / answers, 4) if answers else None
        found[name] = {"accuracy": accuracy, "acceptance": accepted}
    return found
