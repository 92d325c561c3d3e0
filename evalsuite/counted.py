"""What a run comes to: shares, drafts, drift, routes and times by arm, and their sums over runs.

A baseline keeps these beside the answers, and a run is held against them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
import numpy as np

from evalsuite.baseline_file import Drafts, Drifted, HardwareRun, Shares
from evalsuite.runview import ArmView, RunView
from evalsuite.walls import arm_seconds, ratios_in

Counted = TypeVar("Counted", Shares, Drifted)


def shares_of(view: RunView, name: str, margin: float) -> Shares | None:
    """Count how an arm's answers differ from eager's; None where there is no eager arm."""
    arm = view.arms[name]
    texts = int((arm.same_text >= 0).sum())
    if texts == 0:
        return None
    diverged = arm.divergence >= 0
    return Shares(
        margin=margin,
        compared=int((arm.divergence >= -1).sum()),
        diverged=int(diverged.sum()),
        large=int((diverged & (np.nan_to_num(arm.margin) > margin)).sum()),
        texts=texts,
        different=int((arm.same_text == 0).sum()),
    )


def drafts_of(view: RunView, name: str) -> Drafts | None:
    """Return the acceptance that an arm's evidence tells, if it does."""
    evidence = view.arms[name].evidence
    if evidence is None or not evidence.drafts or evidence.accepted_per_position is None:
        return None
    return Drafts(drafts=evidence.drafts, accepted=list(evidence.accepted_per_position))


def drifted_of(arm: ArmView, limit: float) -> Drifted | None:
    """Count the answers whose margins drift from eager's; None where none could be compared."""
    compared = int((~np.isnan(arm.drift)).sum())
    drifted = int((np.nan_to_num(arm.drift) > limit).sum())
    return Drifted(limit=limit, compared=compared, drifted=drifted) if compared else None


def routes_of(view: RunView) -> dict[str, dict[str, str]]:
    """Return the kernel routes by arm and row kind, of the arms that tell them."""
    return {
        name: dict(arm.evidence.routes)
        for name, arm in view.arms.items()
        if arm.evidence is not None and arm.evidence.routes is not None
    }


def times_of(view: RunView) -> HardwareRun:
    """Return seconds and ratios by arm."""
    seconds = {name: arm_seconds(arm) for name, arm in view.arms.items()}
    return HardwareRun(
        answers=view.run.plan.repeats * len(view.ids),
        concurrency=view.run.engine.concurrency,
        seconds={name: value for name, value in seconds.items() if value > 0.0},
        ratios={name: found.ratio for name, found in ratios_in(view).items()},
    )


def pooled_drafts(parts: Sequence[Drafts | None]) -> Drafts | None:
    """Add up acceptance over runs; None where no run tells it."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    length = max(len(part.accepted) for part in known)
    padded = [part.accepted + [0] * (length - len(part.accepted)) for part in known]
    return Drafts(
        drafts=sum(part.drafts for part in known),
        accepted=[sum(column) for column in zip(*padded, strict=True)],
    )


def pooled_shares(parts: Sequence[Shares | None]) -> Shares | None:
    """Add up shares over runs that count the same margins as the last; None where none tells."""
    return _summed(parts, "margin")


def pooled_drifted(parts: Sequence[Drifted | None]) -> Drifted | None:
    """Add up drifts over runs that have the limit of the last; None where none tells."""
    return _summed(parts, "limit")


def _summed(parts: Sequence[Counted | None], key: str) -> Counted | None:
    """Add up every field but `key`, over the parts that have the last one's."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    last = known[-1]
    same = [part for part in known if getattr(part, key) == getattr(last, key)]
    names = [name for name in last.__struct_fields__ if name != key]
    sums = {name: sum(getattr(part, name) for part in same) for name in names}
    return msgspec.structs.replace(last, **sums)
