"""Degeneration: one near-certain find fails; weak finds count as an excess; arms are compared."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evalsuite.checks.finding import Finding, Status, some
from evalsuite.checks.rates import Rise, of_arm, rises
from evalsuite.degenerate import AnswerView, Shift, compare, distribution
from evalsuite.policy import Policy
from evalsuite.reference import Reference, accepted_arm
from evalsuite.runview import ABSENT, EAGER, ArmView, Int8, RunView

CHECK = "degeneration"
# Distributions are measured on the first answers of a large run: they need no more.
MEASURED = 4000
EXCERPT = 120


def degeneration(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Check every answer, then the rates of weak finds, then arms as a whole."""
    found = [
        finding for arm in run.arms.values() for finding in _certain(run, arm, reference, policy)
    ]
    found += _excesses(run, reference, policy)
    found += _shifts(run, policy)
    if found:
        return found
    weak = sum(int(arm.flagged(False).sum()) for arm in run.arms.values())
    message = f"no degenerate answer; {weak} weak finds, no excess"
    return [Finding(check=CHECK, status="pass", arm=None, message=message, figures={"weak": weak})]


def _certain(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    high = arm.flagged(True)
    if not high.any():
        return
    accepted = accepted_arm(reference, arm.name)
    if accepted is not None and accepted.high.any() and arm.complete:
        yield from _weak_model(run, arm, reference, policy)
        return
    first = min((seen for seen in arm.seen if seen.high), key=lambda seen: seen[1::-1])
    text = arm.texts[first.repeat][first.item] or ""
    yield Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"{int(high.sum())} degenerate answers in {arm.name}, the first by rule "
        f"{first.rule} on item {run.ids[first.item]}",
        figures={
            "degenerate": int(high.sum()),
            "rules": _rules(arm, True),
            "item": run.ids[first.item],
            "repeat": first.repeat,
            "excerpt": text[:EXCERPT],
        },
        examples=some(run.where(high == 1)),
    )


def _weak_model(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    """Where accepted answers are degenerate themselves, only an excess over them is a fault."""

    def theirs(name: str) -> Int8 | None:
        known = reference is not None and name == arm.name
        return reference.arms[name].high if known and reference is not None else None

    for rise in rises(run, reference, lambda view: view.flagged(True), theirs, against_eager=False):
        if rise.p_holm <= policy.degeneration.warn_level:
            yield _excess(run, [rise], "degenerate answers", True, policy)


def _excesses(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Weak finds: an arm fails when they exceed both the baseline's and eager's."""

    def theirs(name: str) -> Int8 | None:
        return reference.arms[name].low if reference and name in reference.arms else None

    found = rises(run, reference, lambda view: view.flagged(False), theirs, against_eager=True)
    return [
        _excess(run, same, "weak finds of degeneration", False, policy)
        for same in of_arm(found).values()
        if max(rise.p_holm for rise in same) <= policy.degeneration.warn_level
    ]


def _excess(run: RunView, same: list[Rise], what: str, high: bool, policy: Policy) -> Finding:
    arm = run.arms[same[0].arm]
    p = max(rise.p_holm for rise in same)
    status: Status = "fail" if p <= policy.degeneration.fail_level else "warn"
    others = " and ".join(f"{rise.theirs:.2%} in {rise.against}" for rise in same)
    return Finding(
        check=CHECK,
        status=status,
        arm=arm.name,
        message=f"{same[0].ours:.2%} of the answers of {arm.name} are {what}, {others}",
        figures={"p": p, "rules": _rules(arm, high), "share": same[0].ours},
        examples=some(run.where(arm.flagged(high) == 1)),
    )


def _rules(arm: ArmView, high: bool) -> dict[str, int]:
    names = [seen.rule for seen in arm.seen if seen.high == high]
    return {name: names.count(name) for name in sorted(set(names))}


def _shifts(run: RunView, policy: Policy) -> Iterator[Finding]:
    eager = run.arms.get(EAGER)
    if eager is None:
        return
    for arm in run.arms.values():
        if arm is eager:
            continue
        both = np.flatnonzero((arm.outcome[0] != ABSENT) & (eager.outcome[0] != ABSENT))[:MEASURED]
        if len(both) < 2 or (arm.same_text[0, both] == 1).all():
            continue
        for shift in compare(_measured(run, arm, both), _measured(run, eager, both)):
            if abs(shift.z) >= policy.degeneration.shift_warn:
                yield _shifted(arm.name, shift, policy)


def _measured(run: RunView, arm: ArmView, columns: np.ndarray[tuple[int], np.dtype[np.int64]]):  # type: ignore[no-untyped-def]
    return distribution(
        AnswerView(arm.texts[0][column] or "", prompt=run.items[column].question)
        for column in map(int, columns)
    )


def _shifted(name: str, shift: Shift, policy: Policy) -> Finding:
    status: Status = "fail" if abs(shift.z) >= policy.degeneration.shift_fail else "warn"
    z = max(min(shift.z, 1e6), -1e6)
    return Finding(
        check=CHECK,
        status=status,
        arm=name,
        message=f"answers of {name} differ as a whole from eager's in {shift.feature}: "
        f"{shift.arm:.4g} against {shift.twin:.4g} on average ({z:+.1f} standard errors)",
        figures={"feature": shift.feature, "arm": shift.arm, "eager": shift.twin, "z": z},
    )
