"""Completeness: every arm has every planned answer once, of its own making, and undamaged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from evalsuite.checks.finding import Finding, some
from evalsuite.policy import Policy
from evalsuite.reference import Reference
from evalsuite.runview import ABSENT, ArmView, Problem, RunView

CHECK = "completeness"


def completeness(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Check records against the plan, and arms against each other for copies."""
    found = [finding for arm in run.arms.values() for finding in _arm(run, arm, policy)]
    found += _copies(run, policy)
    if not run.same_extractor:
        message = (
            f"records were scored by version {run.run.protocol.extractor}; they are judged anew"
        )
        found.append(Finding(check=CHECK, status="warn", arm=None, message=message))
    if not found:
        answers = sum(arm.outcome.size for arm in run.arms.values())
        message = f"{len(run.arms)} arms, {len(run.ids)} items, {answers} answers"
        found.append(Finding(check=CHECK, status="pass", arm=None, message=message))
    return found


def _arm(run: RunView, arm: ArmView, policy: Policy) -> Iterator[Finding]:
    for problem in _told_once(arm.problems):
        unfinished = problem.kind == "unfinished"
        yield Finding(
            check=CHECK,
            status="missing" if unfinished else "fail",
            arm=arm.name,
            message=problem.message,
            examples=list(problem.examples),
            incomplete=unfinished,
        )
    absent = arm.outcome == ABSENT
    if absent.any():
        had, planned = int((~absent).sum()), absent.size
        yield Finding(
            check=CHECK,
            status="fail" if arm.finished else "missing",
            arm=arm.name,
            message=f"{arm.name} has {had} of {planned} planned answers",
            figures={"answers": had, "planned": planned},
            examples=some(run.where(absent)),
            incomplete=not arm.finished,
        )
    yield from _errors(run, arm, policy.completeness.max_errors)


def _errors(run: RunView, arm: ArmView, limit: int) -> Iterator[Finding]:
    errors = arm.are("error") == 1
    count = int(errors.sum())
    if count > limit:
        yield Finding(
            check=CHECK,
            status="fail",
            arm=arm.name,
            message=f"no answer was obtained for {count} requests of {arm.name} ({limit} allowed)",
            figures={"errors": count},
            examples=some(run.where(errors)),
        )


def _told_once(problems: list[Problem]) -> list[Problem]:
    """The first problem of each kind, with the number of the others."""
    kinds: dict[str, list[Problem]] = {}
    for problem in problems:
        kinds.setdefault(problem.kind, []).append(problem)
    told = []
    for kind, same in kinds.items():
        more = f" (and {len(same) - 1} more: {kind})" if len(same) > 1 else ""
        examples = tuple(one for problem in same for one in problem.examples)[:10]
        told.append(Problem(same[0].kind, same[0].message + more, examples))
    return told


def _copies(run: RunView, policy: Policy) -> Iterator[Finding]:
    for first, second in combinations(run.arms.values(), 2):
        both = (first.outcome != ABSENT) & (second.outcome != ABSENT)
        timed = both & (first.ended > first.started)
        # Two arms can give equal answers, but not begin and end them at the same moments.
        same = timed & (first.started == second.started) & (first.ended == second.ended)
        if int(same.sum()) > policy.completeness.copied * max(int(both.sum()), 1):
            yield Finding(
                check=CHECK,
                status="fail",
                arm=second.name,
                message=f"{second.name} is a copy of {first.name}: {int(same.sum())} of its "
                "answers began and ended at the same moments",
                figures={"copied": int(same.sum()), "of": first.name},
                examples=some(run.where(np.asarray(same))),
            )
