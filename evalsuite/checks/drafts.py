"""Drafts paired by item: an answer that stayed the same, drafted otherwise than when accepted.

A rate over all steps hides a small loss in its tolerance. The same answer has the same steps, so
that item by item nothing but the drafter can have changed its counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from evalsuite.checks.finding import Finding, some
from evalsuite.policy import Policy
from evalsuite.reference import Reference, ReferenceArm, accepted_arm
from evalsuite.runview import ABSENT, ArmView, Bools, Ints, RunView
from evalsuite.stats import sign_flip_pvalue

CHECK = "acceptance"


class Paired(NamedTuple):
    """Counts of an arm's and of accepted answers, (units, items), over `items` that all tell."""

    items: Bools
    drafted: Ints
    accepted: Ints
    their_drafted: Ints
    their_accepted: Ints

    @property
    def change(self) -> float:
        """How far the accepted share of drafted tokens moved."""
        ours = self.accepted.sum() / max(int(self.drafted.sum()), 1)
        return float(ours - self.their_accepted.sum() / max(int(self.their_drafted.sum()), 1))


def paired(arm: ArmView, accepted: ReferenceArm) -> Paired | None:
    """Pair the counts of an arm with accepted ones; None where these have none."""
    if accepted.counts is None or not arm.complete:
        return None
    parts = (arm.drafted, arm.accepted, *accepted.counts)
    items = np.logical_and.reduce([(part >= 0).all(axis=0) for part in parts])
    return Paired(items, *(part[:, items] for part in parts)) if items.any() else None


def paired_drafts(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    """Judge an arm's draft counts item by item beside the accepted ones."""
    known = accepted_arm(reference, arm.name)
    if reference is None or known is None or not reference.same_numbers(run):
        return
    yield from _untold(arm, known)
    impossible = arm.accepted > arm.drafted
    if impossible.any():
        yield _more_than_drafted(run, arm, impossible)
        return
    pairs = paired(arm, known)
    if pairs is None:
        return
    if run.exact:
        changed, compared = _changed(arm, known)
        if int(changed.sum()) > policy.acceptance.changed_share * int(compared.sum()):
            yield _otherwise(run, arm, changed, compared, pairs)
            return
    yield from _moved(run, arm, pairs, policy)


def _untold(arm: ArmView, known: ReferenceArm) -> Iterator[Finding]:
    """Counts in some records only, or in none where accepted answers have them."""
    answered = int((arm.outcome != ABSENT).sum()) - int(arm.are("error").sum())
    absent = answered - int((arm.drafted >= 0).sum())
    if known.counts is not None and absent > 0:
        yield Finding(
            check=CHECK,
            status="missing",
            arm=arm.name,
            message=f"{absent} of {answered} records of {arm.name} do not tell their drafts",
            evidence="drafted",
        )


def _more_than_drafted(run: RunView, arm: ArmView, where: Bools) -> Finding:
    return Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"{int(where.sum())} records of {arm.name} accept more drafts than they made",
        examples=some(run.where(where)),
    )


def _changed(arm: ArmView, known: ReferenceArm) -> tuple[Bools, Bools]:
    """Where counts are those of no accepted answer of the same text, and where there is one."""
    assert known.counts is not None
    compared, same = np.zeros(arm.shape, bool), np.zeros(arm.shape, bool)
    for equal, drafted, accepted in zip(known.equal_texts(arm), *known.counts, strict=True):
        told = equal & (arm.drafted >= 0) & (drafted >= 0)
        compared |= told
        same |= told & (arm.drafted == drafted) & (arm.accepted == accepted)
    return compared & ~same, compared


def _otherwise(
    run: RunView, arm: ArmView, changed: Bools, compared: Bools, pairs: Paired
) -> Finding:
    return Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"{arm.name} drafts otherwise than the accepted runs in {int(changed.sum())} of "
        f"{int(compared.sum())} answers of the same text; accepted drafts {_told(pairs)}",
        figures={
            "changed": int(changed.sum()),
            "compared": int(compared.sum()),
            "change": pairs.change,
        },
        examples=some(run.where(changed)),
    )


def _moved(run: RunView, arm: ArmView, pairs: Paired, policy: Policy) -> Iterator[Finding]:
    limits = policy.acceptance
    if abs(pairs.change) < limits.least_change:
        return
    ours, theirs = pairs.drafted - pairs.accepted, pairs.their_drafted - pairs.their_accepted
    p = float(sign_flip_pvalue(ours, theirs, "two-sided"))
    if p * max(len(run.mtp), 1) > limits.fail_level:
        return
    yield Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"accepted drafts of {arm.name} {_told(pairs)} against the accepted runs, over "
        f"{int(pairs.items.sum())} items paired (p = {p:.2g})",
        figures={"change": pairs.change, "items": int(pairs.items.sum()), "p": p},
        examples=some(_gravest(run, pairs)),
    )


def _gravest(run: RunView, pairs: Paired) -> list[str]:
    misses = (pairs.drafted - pairs.accepted).mean(axis=0)
    more = np.abs(misses - (pairs.their_drafted - pairs.their_accepted).mean(axis=0))
    places = np.flatnonzero(pairs.items)
    return [run.ids[places[at]] for at in np.argsort(-more, kind="stable") if more[at] > 0]


def _told(pairs: Paired) -> str:
    points = 100 * pairs.change
    return f"{'rose' if points > 0 else 'fell'} by {abs(points):.2f} points"
