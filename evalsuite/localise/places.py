"""The first place of each wrong arm: its rows, its boundaries, what ran beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evalsuite.localise.geometry import Geometry
from evalsuite.localise.onsets import Onset
from evalsuite.localise.told import Place
from evalsuite.runview import ABSENT, EAGER, EQUAL, ArmView, RunView


def places_of(
    run: RunView, onsets: Mapping[str, Sequence[Onset]], geometry: Geometry
) -> list[Place]:
    """The first place of every arm that has one, in the plan's order of items."""
    firsts = {
        name: min(found, key=lambda one: (one.repeat, one.item))
        for name, found in onsets.items()
        if found
    }
    return [_place(run, run.arms[name], one, onsets, geometry) for name, one in firsts.items()]


def _place(
    run: RunView,
    arm: ArmView,
    one: Onset,
    onsets: Mapping[str, Sequence[Onset]],
    geometry: Geometry,
) -> Place:
    position = None if one.prompt_tokens is None else one.prompt_tokens + one.token - 1
    return Place(
        arm=arm.name,
        item=run.ids[one.item],
        repeat=one.repeat,
        token=one.token,
        moved=one.moved,
        margin=one.margin,
        rows=rows_of(arm, one.token),
        row=one.row,
        position=position,
        in_pool=_within(position, geometry.pool),
        in_block=_within(position, geometry.block),
        behind_topk=None
        if position is None or geometry.topk is None
        else position >= geometry.topk,
        neighbours=_neighbours(run, arm, one),
        agree=_agreeing(run, arm, one, onsets),
    )


def rows_of(arm: ArmView, token: int) -> str:
    """The kind of rows that computed a token, with their width where only one was ever run."""
    if token == 0:
        return "prefill"
    if not arm.arm.mtp:
        return "decode"
    steps = (arm.evidence.steps_by_kind if arm.evidence is not None else None) or {}
    widths = sorted(int(kind.partition(":")[2]) for kind in steps if kind.startswith("verify:"))
    if len(widths) > 1:
        return f"verify:{widths[0]} to {widths[-1]}"
    return f"verify:{widths[0] if widths else arm.arm.mtp + 1}"


def _within(position: int | None, size: int | None) -> int | None:
    return None if position is None or size is None else position % size


def _neighbours(run: RunView, arm: ArmView, one: Onset) -> list[str]:
    at = (one.repeat, one.item)
    beside = (
        (arm.outcome[one.repeat] != ABSENT)
        & (arm.block[one.repeat] == arm.block[at])
        & (arm.started[one.repeat] < arm.ended[at])
        & (arm.ended[one.repeat] > arm.started[at])
    )
    beside[one.item] = False
    return [run.ids[int(other)] for other in np.flatnonzero(beside)]


def _agreeing(
    run: RunView, arm: ArmView, one: Onset, onsets: Mapping[str, Sequence[Onset]]
) -> list[str]:
    """Other arms that give eager's tokens, and margins, up to this one."""
    agree = []
    for name, view in run.arms.items():
        if name in (EAGER, arm.name) or view.outcome[one.repeat, one.item] == ABSENT:
            continue
        theirs = [
            other
            for other in onsets.get(name, ())
            if (other.item, other.repeat) == (one.item, one.repeat)
        ]
        equal = view.divergence[one.repeat, one.item] == EQUAL
        if (not theirs and equal) or (theirs and theirs[0].token > one.token):
            agree.append(name)
    return agree
