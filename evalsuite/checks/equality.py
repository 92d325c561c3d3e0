"""Equality: where an arm's greedy tokens first part from eager's, how clear the choice was, and
whether margins drift where the tokens are the same."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
from scipy import stats as scipy_stats

from evalsuite.baseline_file import Shares
from evalsuite.checks.drift import against_accepted, against_eager, judges_accepted
from evalsuite.checks.finding import Finding, some
from evalsuite.counted import shares_of
from evalsuite.policy import Policy
from evalsuite.reference import Reference, accepted_arm
from evalsuite.runview import ABSENT, EAGER, NO_IDS, ArmView, Bools, RunView

CHECK = "equality"


def equality(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Compare every arm with eager of the same run, and eager with the accepted answers."""
    others = [arm for name, arm in run.arms.items() if name != EAGER]
    drifted = list(against_accepted(run, reference, policy))
    if EAGER not in run.arms or not others:
        message = "needs eager and another arm in the run"
        return drifted or [Finding(check=CHECK, status="skipped", arm=None, message=message)]
    found = list(_partly_told(run))
    for arm in others:
        parted = list(_beside_eager(run, arm, reference, policy))
        found += parted or against_eager(run, arm, reference, policy)
    found += drifted
    return found or [_passed(run, reference, policy)]


def _beside_eager(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    """Compare tokens, or texts where the engine tells no tokens."""
    told = (arm.divergence != NO_IDS) & (arm.same_text != ABSENT)
    if not (arm.same_text != ABSENT).any():
        message = f"{arm.name} has no answer that could be compared with eager's"
        finding = Finding(
            check=CHECK,
            status="missing",
            arm=arm.name,
            message=message,
            evidence="text",
            incomplete=not (arm.finished and run.arms[EAGER].finished),
        )
        yield finding
    elif run.exact:
        yield from _exact(run, arm, told, policy)
    else:
        yield from _shares(run, arm, reference, policy)


def _partly_told(run: RunView) -> Iterator[Finding]:
    """Token ids or margins in some records only: an engine gives all or none, so some were lost."""
    for arm in run.arms.values():
        answered = int((arm.outcome != ABSENT).sum())
        for field, absent in (("token_ids", arm.without_ids), ("margins", arm.without_margins)):
            if 0 < absent < answered - int(arm.are("error").sum()):
                yield Finding(
                    check=CHECK,
                    status="missing",
                    arm=arm.name,
                    message=f"{absent} of {answered} records of {arm.name} have no {field}",
                    evidence=field,
                )


def _exact(run: RunView, arm: ArmView, told: Bools, policy: Policy) -> Iterator[Finding]:
    limits = policy.equality
    diverged = arm.divergence >= 0
    # A divergence whose margin is not known cannot be excused as rounding.
    clear = diverged & ~(arm.margin <= limits.rounding)
    by_text = (arm.same_text == 0) & ~told
    rounding = (diverged & ~clear) | by_text
    compared = int((arm.same_text != ABSENT).sum())
    if clear.any():
        yield _diverged(run, arm, clear, "above the rounding margin", compared)
    if int(rounding.sum()) > limits.rounding_share * compared:
        yield _diverged(run, arm, rounding, "more often than rounding explains", compared)


def _diverged(run: RunView, arm: ArmView, where: Bools, how: str, compared: int) -> Finding:
    repeat, item = (int(axis[0]) for axis in np.nonzero(where))
    at, margin = int(arm.divergence[repeat, item]), float(arm.margin[repeat, item])
    place = f"; on item {run.ids[item]} at token {at}" if at >= 0 else f"; on item {run.ids[item]}"
    shown = f", margin {margin:.3g}" if np.isfinite(margin) else ""
    return Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"{int(where.sum())} of {compared} answers of {arm.name} part from eager's "
        f"{how}{place}{shown}",
        figures={
            "diverged": int(where.sum()),
            "compared": compared,
            "item": run.ids[item],
            "token": at if at >= 0 else None,
            "margin": margin if np.isfinite(margin) else None,
        },
        examples=some(run.where(where)),
    )


def _shares(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    limits = policy.equality
    ours = shares_of(run, arm.name, limits.large)
    accepted = accepted_arm(reference, arm.name)
    theirs = None if accepted is None else accepted.shares
    if ours is None:
        return
    if theirs is None:
        yield from _large_alone(run, arm, ours, policy)
        return
    if theirs.margin != ours.margin:
        message = (
            f"the baseline counted margins above {theirs.margin:g}, the policy asks for "
            f"{ours.margin:g}: accept runs anew, or set equality.large back"
        )
        yield Finding(check=CHECK, status="missing", arm=arm.name, message=message)
        return
    for what, mine, total, other, others in _counts(ours, theirs):
        rise = mine / total - other / others
        table = [[mine, total - mine], [other, others - other]]
        p = float(scipy_stats.fisher_exact(table, alternative="greater").pvalue)
        if rise >= limits.least_rise and p * 2 * max(len(run.arms) - 1, 1) <= limits.fail_level:
            where = (arm.divergence >= 0) | (arm.same_text == 0)
            yield Finding(
                check=CHECK,
                status="fail",
                arm=arm.name,
                message=f"{mine / total:.1%} of the answers of {arm.name} {what}, "
                f"{other / others:.1%} in the baseline",
                figures={"share": mine / total, "baseline": other / others, "p": p},
                examples=some(run.where(where)),
            )


def _large_alone(run: RunView, arm: ArmView, ours: Shares, policy: Policy) -> Iterator[Finding]:
    """Without a baseline nobody knows how often rounding leads elsewhere: this only warns."""
    limits = policy.equality
    if ours.large > limits.large_share * max(ours.compared, 1):
        where = (arm.divergence >= 0) & (np.nan_to_num(arm.margin) > limits.large)
        how = f"at a margin above {limits.large:g}"
        found = _diverged(run, arm, where, how, ours.compared)
        yield msgspec.structs.replace(found, status="warn")


def _counts(ours: Shares, theirs: Shares) -> Iterator[tuple[str, int, int, int, int]]:
    if ours.compared and theirs.compared:
        yield "part from eager's", ours.diverged, ours.compared, theirs.diverged, theirs.compared
        what = "part from eager's at a large margin"
        yield what, ours.large, ours.compared, theirs.large, theirs.compared
    elif ours.texts and theirs.texts:
        what = "differ in their text from eager's"
        yield what, ours.different, ours.texts, theirs.different, theirs.texts


def _passed(run: RunView, reference: Reference | None, policy: Policy) -> Finding:
    figures = {}
    for name in run.arms:
        shares = shares_of(run, name, policy.equality.large)
        if shares is not None:
            figures[name] = {key: getattr(shares, key) for key in shares.__struct_fields__}
    parts = [f"{name} {value['different']} of {value['texts']}" for name, value in figures.items()]
    message = f"answers that differ from eager's: {', '.join(parts)}"
    if reference is not None and not judges_accepted(run, reference):
        message += "; the baseline has no margins to hold these against"
    return Finding(check=CHECK, status="pass", arm=None, message=message, figures=figures)
