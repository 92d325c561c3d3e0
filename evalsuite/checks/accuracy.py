"""Accuracy: the paired family of tests, the margin shown, and what could have been seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evalsuite.checks.finding import Finding, Status, some
from evalsuite.policy import Policy
from evalsuite.reference import Reference
from evalsuite.runview import Int8, RunView
from evalsuite.stats import POOLED, AccuracyDecision, AccuracyTest, accuracy_family

CHECK = "accuracy"


def decide(run: RunView, reference: Reference | None, policy: Policy) -> AccuracyDecision | None:
    """Return the decision over the complete arms, None where there is nothing to compare."""
    arms = {name: arm.correct for name, arm in run.arms.items() if arm.complete}
    accepted: dict[str, Int8] = {}
    if reference is not None:
        accepted = {name: reference.arms[name].correct for name in arms if name in reference.arms}
    if not arms or (not accepted and len(arms) == 1):
        return None
    return accuracy_family(arms, accepted, run.mtp, policy.accuracy.rule())


def accuracy(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Check the correctness of all arms."""
    found = list(_not_judged(run, reference))
    decision = decide(run, reference, policy)
    if decision is None:
        message = "nothing to compare the accuracy with"
        return [*found, Finding(check=CHECK, status="skipped", arm=None, message=message)]
    found += [_rejected(run, reference, test, "fail") for test in decision.failed]
    found += [_rejected(run, reference, test, "warn") for test in decision.warned]
    found += list(_hard_drops(decision))
    if found:
        return found
    return [_passed(decision)]


def power_statement_of(decision: AccuracyDecision) -> str:
    """Say what a run could have seen."""
    single = {arm: drop for arm, drop in decision.detectable.items() if arm != POOLED}
    text = (
        f"a drop of {100 * max(single.values()):.1f} points or more in any one arm"
        if single
        else "no drop"
    )
    if POOLED in decision.detectable:
        text += f", or of {100 * decision.detectable[POOLED]:.1f} points in all MTP arms together,"
    return f"{text} would be found with {decision.rule.power:.0%} power at n = {decision.n}"


def _not_judged(run: RunView, reference: Reference | None) -> Iterator[Finding]:
    for name, arm in run.arms.items():
        if not arm.complete:
            yield Finding(
                check=CHECK,
                status="missing",
                arm=name,
                message=f"{name} cannot be judged: answers are missing",
                incomplete=not arm.finished,
            )
        elif reference is not None and name not in reference.arms:
            yield Finding(
                check=CHECK,
                status="warn" if name != "eager" and "eager" in run.arms else "missing",
                arm=name,
                message=f"the baseline has no arm {name}",
            )


def _rejected(
    run: RunView, reference: Reference | None, test: AccuracyTest, status: Status
) -> Finding:
    pairing = test.pairing
    whom = "the MTP arms together" if test.arm == POOLED else test.arm
    against = {"plain": "the arms without speculation", "eager": "eager of this run"}
    return Finding(
        check=CHECK,
        status=status,
        arm=None if test.arm == POOLED else test.arm,
        message=f"{whom} lost {100 * pairing.drop:.2f} points against "
        f"{against.get(test.against, 'the baseline')}: {pairing.losses:.1f} items lost, "
        f"{pairing.gains:.1f} gained (adjusted p = {test.p_holm:.2g})",
        figures={
            "against": test.against,
            "drop": pairing.drop,
            "losses": pairing.losses,
            "gains": pairing.gains,
            "p": test.p,
            "p_holm": test.p_holm,
        },
        examples=_lost(run, reference, test),
    )


def _lost(run: RunView, reference: Reference | None, test: AccuracyTest) -> list[str]:
    names = run.mtp if test.arm == POOLED else [test.arm]
    lost = np.zeros(len(run.ids))
    for name in names:
        if not run.arms[name].complete:
            continue
        other = run.arms["eager"].correct if "eager" in run.arms else np.ones((1, len(run.ids)))
        if test.against == "baseline" and reference is not None:
            other = reference.arms[name].correct
        lost += other.mean(axis=0) - run.arms[name].correct.mean(axis=0)
    order = np.argsort(-lost, kind="stable")
    return some([run.ids[int(index)] for index in order if lost[index] > 0])


def _hard_drops(decision: AccuracyDecision) -> Iterator[Finding]:
    drops = {margin.arm: margin.drop for margin in decision.margins}
    for name in decision.hard_drops:
        yield Finding(
            check=CHECK,
            status="fail",
            arm=name,
            message=f"{name} dropped by {100 * drops[name]:.1f} points, more than the "
            f"{100 * decision.rule.hard_drop:g} that are never accepted",
            figures={"drop": drops[name], "limit": decision.rule.hard_drop},
        )


def _passed(decision: AccuracyDecision) -> Finding:
    shown = [margin.arm for margin in decision.margins if margin.shown]
    points = 100 * decision.rule.margin
    message = (
        f"no drop found; {len(shown)} of {len(decision.margins)} arms are shown to be within "
        f"{points:g} points; {power_statement_of(decision)}"
    )
    return Finding(
        check=CHECK,
        status="pass",
        arm=None,
        message=message,
        figures={"shown": shown, "detectable": dict(decision.detectable)},
    )
