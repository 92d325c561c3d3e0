"""Acceptance: accepted share per draft position, with a floor and a ceiling, and by item."""

from __future__ import annotations

import math
from collections.abc import Iterator

from evalsuite.baseline_file import Drafts
from evalsuite.checks.drafts import paired, paired_drafts
from evalsuite.checks.finding import Finding
from evalsuite.policy import Policy
from evalsuite.records import Evidence
from evalsuite.reference import Reference, accepted_arm
from evalsuite.runview import ArmView, RunView

CHECK = "acceptance"
# Below this chance a run without any miss is no luck.
SUSPICIOUS = 1e-6


def acceptance(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Check the drafts of every arm: of MTP arms that there were any, and how many held."""
    found = [finding for arm in run.arms.values() for finding in _arm(run, arm, reference, policy)]
    if found:
        return found
    if not run.mtp:
        message = "no arm of this run speculates"
        return [Finding(check=CHECK, status="skipped", arm=None, message=message)]
    rates = {name: _rates(run.arms[name].evidence) for name in run.mtp}
    message = "; ".join(
        f"{name} {' '.join(f'{rate:.2f}' for rate in shown)}" for name, shown in rates.items()
    )
    if reference is not None and not any(_pairs(run, reference, name) for name in run.mtp):
        message += "; the baseline has no counts by item to pair these with"
    return [
        Finding(check=CHECK, status="pass", arm=None, message=message, figures={"rates": rates})
    ]


def _pairs(run: RunView, reference: Reference, name: str) -> bool:
    known = accepted_arm(reference, name)
    return known is not None and paired(run.arms[name], known) is not None


def _rates(evidence: Evidence | None) -> list[float]:
    if evidence is None or not evidence.drafts or evidence.accepted_per_position is None:
        return []
    return [count / evidence.drafts for count in evidence.accepted_per_position]


def _finding(arm: ArmView, message: str, **figures: object) -> Finding:
    return Finding(check=CHECK, status="fail", arm=arm.name, message=message, figures=figures)


def _arm(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    evidence = arm.evidence
    if evidence is None:
        yield _missing(arm, "drafts", f"{arm.name} has no evidence of its drafts")
        return
    if not arm.arm.mtp:
        if evidence.drafts:
            yield _finding(arm, f"{arm.name} drafted although it must not: {evidence.drafts} times")
        return
    for field in ("drafts", "drafted_tokens", "accepted_per_position"):
        if getattr(evidence, field) is None:
            yield _missing(arm, field, f"the evidence of {arm.name} does not tell {field}")
    if evidence.drafts == 0:
        yield _finding(arm, f"{arm.name} made no drafts: speculation never ran", drafts=0)
    elif evidence.drafts is not None and evidence.accepted_per_position is not None:
        yield from _positions(arm, evidence, evidence.drafts, evidence.accepted_per_position)
        yield from _against(arm, reference, policy)
        yield from paired_drafts(run, arm, reference, policy)


def _missing(arm: ArmView, field: str, message: str) -> Finding:
    return Finding(
        check=CHECK,
        status="missing",
        arm=arm.name,
        message=message,
        evidence=field,
        incomplete=not arm.finished,
    )


def _positions(
    arm: ArmView, evidence: Evidence, drafts: int, accepted: list[int]
) -> Iterator[Finding]:
    if len(accepted) != arm.arm.mtp:
        message = f"{arm.name} tells acceptance at {len(accepted)} positions, not {arm.arm.mtp}"
        yield _finding(arm, message, accepted=accepted)
    steps = [drafts, *accepted]
    if any(later > earlier for earlier, later in zip(steps, accepted, strict=False)):
        message = f"{arm.name} accepted more drafts at a position than reached it: {accepted}"
        yield _finding(arm, message, drafts=drafts, accepted=accepted)
    drafted = evidence.drafted_tokens
    if drafted is not None and sum(accepted) > drafted:
        message = f"{arm.name} accepted {sum(accepted)} tokens of {drafted} drafted"
        yield _finding(arm, message, drafted=drafted)


def _against(arm: ArmView, reference: Reference | None, policy: Policy) -> Iterator[Finding]:
    rates = _rates(arm.evidence)
    drafts = arm.evidence.drafts if arm.evidence is not None and arm.evidence.drafts else 0
    known = accepted_arm(reference, arm.name)
    accepted = None if known is None else known.drafts
    if accepted is None:
        if rates and rates[0] >= 1.0:
            message = f"{arm.name} accepted every first draft: a rate of 1.0 is suspicious"
            yield Finding(
                check=CHECK, status="warn", arm=arm.name, message=message, figures={"rates": rates}
            )
        return
    for position, rate in enumerate(rates):
        expected = accepted.accepted[position] / accepted.drafts if _has(accepted, position) else 0
        allowed = allowed_distance(expected, drafts, accepted.drafts, policy)
        if abs(rate - expected) > allowed:
            side = "below the floor" if rate < expected else "above the ceiling"
            yield _finding(
                arm,
                f"{arm.name} accepts {rate:.1%} of the drafts at position {position + 1}, {side} "
                f"of {expected:.1%} {'-' if rate < expected else '+'} {allowed:.1%}",
                position=position + 1,
                rate=rate,
                expected=expected,
                allowed=allowed,
            )
        elif rate == 1.0 and _chance_of_no_miss(expected, drafts, accepted.drafts) < SUSPICIOUS:
            yield _finding(
                arm,
                f"{arm.name} accepted all {drafts} drafts at position {position + 1}; the accepted "
                f"runs missed {1.0 - expected:.2%}: a rate of 1.0 is suspicious",
                position=position + 1,
                rate=rate,
                expected=expected,
            )


def _chance_of_no_miss(expected: float, ours: int, theirs: int) -> float:
    """P(no miss in `ours` drafts) at the accepted rate, of whose misses one is given away."""
    misses = max((1.0 - expected) * theirs - 1.0, 0.0)
    return float((1.0 - misses / max(theirs, 1)) ** ours)


def _has(accepted: Drafts, position: int) -> bool:
    return position < len(accepted.accepted)


def allowed_distance(expected: float, ours: int, theirs: int, policy: Policy) -> float:
    """Return how far a rate may lie from `expected`: the policy's tolerance, or so many standard
    errors of the difference between rates over `ours` and `theirs` steps where that is more.

    Half a success is added on both sides (Agresti and Caffo 2000), so that a rate of 1.0 has an
    error too.
    """
    shrunk = (expected * theirs + 0.5) / (theirs + 1.0)
    error = math.sqrt(shrunk * (1.0 - shrunk) * (1.0 / max(ours, 1) + 1.0 / max(theirs, 1)))
    return max(policy.acceptance.tolerance, policy.acceptance.errors * error)
