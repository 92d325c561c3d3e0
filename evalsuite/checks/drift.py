"""Drift: margins that move although the tokens stay. A wrong kernel shows here first.

In float32 a right engine's margins move by rounding alone, so that any clear drift is a fault. In
other types hard top-k turns rounding into other key sets and single margins jump: there the share
of answers that drift is judged, beside the baseline's own share against eager of the same run, and
by the mean over an answer, which moves little, against the accepted answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import stats as scipy_stats

from evalsuite.baseline_file import Drifted
from evalsuite.checks.finding import Finding, some
from evalsuite.counted import drifted_of
from evalsuite.policy import Policy
from evalsuite.reference import Reference, ReferenceArm
from evalsuite.runview import EAGER, ArmView, Bools, Floats, RunView

CHECK = "equality"
# Rounding has either sign: the mean over an answer moves less than its worst margin does.
MEAN = 0.1


class Held(NamedTuple):
    """An arm's answers held against accepted ones, arrays of shape (repeats, items).

    `distance`: how far the mean margin lies from the nearest accepted answer of equal text, NaN
    where there is none. `other`: no accepted answer has this text. Both only where margins are
    known on both sides.
    """

    distance: Floats
    other: Bools


def against_eager(
    run: RunView, arm: ArmView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    """Judge the margins of an arm beside those of eager, over the tokens that the two share."""
    if run.exact:
        yield from _exact(run, arm, policy)
    elif reference is not None and arm.name in reference.arms and reference.same_numbers(run):
        yield from _more_drifted(run, arm, reference.arms[arm.name].drifted, policy)


def against_accepted(
    run: RunView, reference: Reference | None, policy: Policy
) -> Iterator[Finding]:
    """Judge eager beside the accepted answers: what hits every arm alike shows only there.

    Without eager every arm is judged. Other weights or another type have other numbers: nothing.
    """
    for name, accepted in _judged_arms(run, reference):
        held = held_against(run.arms[name], accepted)
        if held is None:
            continue
        if run.arms[name].complete and np.isnan(run.arms[name].mean_margin).all():
            yield _without_margins(name)
        elif run.exact:
            yield from _exact_accepted(run, run.arms[name], held, policy)
        else:
            usual = own_spread(accepted, policy.equality.mean_drift)
            yield from _moved(run, run.arms[name], held.distance, usual, policy)


def judges_accepted(run: RunView, reference: Reference | None) -> bool:
    """Whether the reference keeps margins that eager's, or else any arm's, can be held against."""
    return any(arm.mean_margin is not None for _, arm in _judged_arms(run, reference))


def _judged_arms(run: RunView, reference: Reference | None) -> Iterator[tuple[str, ReferenceArm]]:
    """Eager, or every arm without it, with what was accepted of it in the same numbers."""
    if reference is None or not reference.same_numbers(run):
        return
    for name in [EAGER] if EAGER in run.arms else run.arms:
        if name in reference.arms:
            yield name, reference.arms[name]


def held_against(arm: ArmView, accepted: ReferenceArm) -> Held | None:
    """Hold an arm against accepted answers; None where these have no margins."""
    if accepted.mean_margin is None:
        return None
    distance = np.full(arm.shape, np.nan)
    for unit, equal in enumerate(accepted.equal_texts(arm)):
        away = np.where(equal, np.abs(arm.mean_margin - accepted.mean_margin[unit]), np.nan)
        distance = np.fmin(distance, away)
    told = ~np.isnan(arm.mean_margin) & ~np.isnan(accepted.mean_margin).all(axis=0)
    return Held(distance, told & np.isnan(distance))


def own_spread(accepted: ReferenceArm, limit: float) -> float:
    """The share of accepted answers whose mean margin lies farther than `limit` from that of every
    other accepted answer of the same text: what an engine that never repeats itself does anyway."""
    if accepted.mean_margin is None:
        return 0.0
    texts = np.array(accepted.texts, object)
    known = moved = 0
    for unit, means in enumerate(accepted.mean_margin):
        away = np.where(texts == texts[unit], np.abs(accepted.mean_margin - means), np.nan)
        away[unit] = np.nan
        nearest = np.fmin.reduce(away)
        known += int((~np.isnan(nearest)).sum())
        moved += int((np.nan_to_num(nearest) > limit).sum())
    return moved / max(known, 1)


def _without_margins(name: str) -> Finding:
    return Finding(
        check=CHECK,
        status="missing",
        arm=name,
        message=f"no record of {name} has margins, the accepted runs have them",
        evidence="margins",
    )


def _exact(run: RunView, arm: ArmView, policy: Policy) -> Iterator[Finding]:
    limits = policy.equality
    compared = int((~np.isnan(arm.drift)).sum())
    moved = np.nan_to_num(arm.drift) > limits.drift
    if int(moved.sum()) <= limits.rounding_share * compared:
        return
    repeat, item = (int(axis[0]) for axis in np.nonzero(moved))
    token, most = int(arm.drift_at[repeat, item]), float(arm.drift[repeat, item])
    yield Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"margins of {int(moved.sum())} of {compared} answers of {arm.name} leave eager's "
        f"where the tokens are the same, by more than rounding; on item {run.ids[item]} at token "
        f"{token} by {most:.3g}",
        figures={
            "drifted": int(moved.sum()),
            "compared": compared,
            "item": run.ids[item],
            "token": token,
            "drift": most,
        },
        examples=some(run.where(moved)),
    )


def _exact_accepted(run: RunView, arm: ArmView, held: Held, policy: Policy) -> Iterator[Finding]:
    limits = policy.equality
    moved = (np.nan_to_num(held.distance) > MEAN * limits.drift) | held.other
    compared = int((~np.isnan(held.distance) | held.other).sum())
    if int(moved.sum()) <= limits.rounding_share * compared:
        return
    yield _from_accepted(run, arm, moved, held, compared)


def _from_accepted(run: RunView, arm: ArmView, moved: Bools, held: Held, compared: int) -> Finding:
    texts = int(held.other.sum())
    away = held.distance[moved & ~held.other]
    middle = f", half of them by {np.median(away):.3g} or more" if len(away) else ""
    return Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"{int(moved.sum())} of {compared} answers of {arm.name} are not the accepted ones "
        f"up to rounding: {texts} have another text, of {len(away)} the mean margin moved{middle}",
        figures={"drifted": int(moved.sum()), "texts": texts, "compared": compared},
        examples=some(run.where(moved)),
    )


def _more_drifted(
    run: RunView, arm: ArmView, theirs: Drifted | None, policy: Policy
) -> Iterator[Finding]:
    limits = policy.equality
    ours = drifted_of(arm, limits.loose_drift)
    if ours is None or theirs is None or theirs.limit != ours.limit:
        return
    share, usual = ours.drifted / ours.compared, theirs.drifted / theirs.compared
    # Another kernel or machine rounds otherwise: that much of a rise is no fault, whatever n is.
    borne = min(usual + limits.drift_rise, 1.0)
    p = float(scipy_stats.binom.sf(ours.drifted - 1, ours.compared, borne))
    if p * max(len(run.arms) - 1, 1) > limits.fail_level:
        return
    yield Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"{share:.1%} of the answers of {arm.name} have a margin more than "
        f"{limits.loose_drift:g} from eager's where the tokens are the same, {usual:.1%} in the "
        "baseline",
        figures={"share": share, "baseline": usual, "p": p},
        examples=some(run.where(np.nan_to_num(arm.drift) > limits.loose_drift)),
    )


def _moved(
    run: RunView, arm: ArmView, distance: Floats, usual: float, policy: Policy
) -> Iterator[Finding]:
    """A repeated item is one witness, not two: its repeats share their fate."""
    limits = policy.equality
    known = ~np.isnan(distance).all(axis=0)
    moved = (np.nan_to_num(distance) > limits.mean_drift).any(axis=0)
    count, compared = int(moved.sum()), int(known.sum())
    borne = min(limits.drift_share + usual, 1.0)
    p = float(scipy_stats.binom.sf(count - 1, compared, borne)) if compared else 1.0
    if p * len(run.arms) > limits.fail_level:
        return
    yield Finding(
        check=CHECK,
        status="fail",
        arm=arm.name,
        message=f"mean margins of {count} of {compared} answers of {arm.name} lie more than "
        f"{limits.mean_drift:g} from the accepted ones; {borne:.0%} are borne",
        figures={"drifted": count, "compared": compared, "borne": borne, "p": p},
        examples=some([run.ids[int(at)] for at in np.flatnonzero(moved)]),
    )
