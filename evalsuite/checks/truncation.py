"""Truncated answers and answers without a value: a jump is told as what it is."""

from __future__ import annotations

import numpy as np

from evalsuite.checks.finding import Finding, Status, some
from evalsuite.checks.rates import Rise, rises
from evalsuite.policy import Policy
from evalsuite.reference import Reference
from evalsuite.runview import Int8, RunView

CHECK = "truncation"
WORDS = {"truncated": "hit the token budget before an answer", "no_answer": "hold no answer"}


def truncation(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Compare both rates, paired, with the baseline's and eager's."""
    found = []
    compared = 0
    for outcome in WORDS:
        by_arm = rises(
            run,
            reference,
            lambda arm, outcome=outcome: arm.are(outcome),  # type: ignore[misc]
            lambda name, outcome=outcome: _accepted(reference, name, outcome),  # type: ignore[misc]
            against_eager=True,
        )
        compared += len(by_arm)
        found += [
            finding
            for rise in by_arm
            if (finding := _finding(run, rise, outcome, policy)) is not None
        ]
    if found:
        return found
    if compared == 0:
        message = "neither a baseline nor a second arm to compare the rates with"
        return [Finding(check=CHECK, status="skipped", arm=None, message=message)]
    return [Finding(check=CHECK, status="pass", arm=None, message=_summary(run), figures={})]


def _accepted(reference: Reference | None, name: str, outcome: str) -> Int8 | None:
    if reference is None or name not in reference.arms:
        return None
    return reference.arms[name].are(outcome)


def _finding(run: RunView, rise: Rise, outcome: str, policy: Policy) -> Finding | None:
    limits = policy.truncation
    if rise.rise < limits.least_rise or rise.p_holm > limits.warn_level:
        return None
    status: Status = "fail" if rise.p_holm <= limits.fail_level else "warn"
    return Finding(
        check=CHECK,
        status=status,
        arm=rise.arm,
        message=f"{rise.ours:.1%} of the answers of {rise.arm} {WORDS[outcome]}, "
        f"{rise.theirs:.1%} in {rise.against}",
        figures={"outcome": outcome, **rise._asdict()},
        examples=some(run.where(np.asarray(run.arms[rise.arm].are(outcome) == 1))),
    )


def _summary(run: RunView) -> str:
    shares = {
        outcome: max(float(arm.are(outcome).mean()) for arm in run.arms.values())
        for outcome in WORDS
    }
    return f"at most {shares['truncated']:.1%} truncated, {shares['no_answer']:.1%} without answer"
