"""Collapse: an arm so wrong on its first items that the baseline cannot explain it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evalsuite.checks.finding import Finding
from evalsuite.policy import Policy
from evalsuite.records import Record
from evalsuite.reference import Reference, ReferenceArm
from evalsuite.runview import ABSENT, RunView
from evalsuite.stats import Look, stop_probability, stopping_look, stopping_rule

CHECK = "collapse"


def collapse(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Look at the first items of every arm, in the plan's order, as the runner does."""
    if reference is None:
        message = "needs the baseline's accuracy"
        return [Finding(check=CHECK, status="skipped", arm=None, message=message)]
    found = []
    for name, arm in run.arms.items():
        if name not in reference.arms:
            continue
        known = reference.arms[name]
        accuracy = known.accuracy
        rule = _rule(known, policy)
        first = arm.outcome[0]
        reached = int((first == ABSENT).argmax()) if (first == ABSENT).any() else len(first)
        correct = [bool(right) for right in arm.correct[0, :reached]]
        look = stopping_look(correct, rule)
        if look is not None:
            found.append(_finding(name, look, sum(correct[: look.items]), accuracy, rule))
    if found:
        return found
    message = "no arm collapsed on its first items"
    return [Finding(check=CHECK, status="pass", arm=None, message=message)]


def expected_share(arm: ReferenceArm) -> float:
    """Share of right answers to expect, by Laplace's rule of succession over the reference's.

    A small reference that got everything right does not make a single wrong answer impossible.
    """
    share: float = (float(arm.correct.sum()) + 1.0) / (arm.correct.size + 2.0)
    return share


def collapse_rule(
    reference: Reference, policy: Policy
) -> Callable[[str, Sequence[Record]], str | None]:
    """Return the rule by which a runner stops an arm: given its name and its first records in the
    plan's order, the reason to stop it, or None."""
    rules = {name: _rule(arm, policy) for name, arm in reference.arms.items()}

    def stop(name: str, records: Sequence[Record]) -> str | None:
        if name not in rules:
            return None
        correct = [record.outcome == "correct" for record in records]
        look = stopping_look(correct, rules[name])
        if look is None:
            return None
        return _reason(look, sum(correct[: look.items]), reference.arms[name].accuracy)

    return stop


def _rule(arm: ReferenceArm, policy: Policy) -> Sequence[Look]:
    return stopping_rule(expected_share(arm), policy.collapse.looks, policy.collapse.level)


def _reason(look: Look, right: int, accuracy: float) -> str:
    return f"{right} of the first {look.items} right, the baseline has {accuracy:.1%}"


def _finding(name: str, look: Look, right: int, accuracy: float, rule: Sequence[Look]) -> Finding:
    return Finding(
        check=CHECK,
        status="fail",
        arm=name,
        message=f"{name} collapsed: {_reason(look, right, accuracy)}",
        figures={
            "items": look.items,
            "right": right,
            "stop_at": look.stop_at,
            "baseline_accuracy": accuracy,
            "false_alarm": stop_probability(rule, accuracy),
        },
    )
