"""Wall times of arms by block, and ratios between arms over the same blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evalsuite.runview import ArmView, Floats, Ints, RunView
from evalsuite.stats import RatioInterval, ratio_interval
from evalsuite.stats.proportions import IntArray

SEED = 20260901


class BlockTimes(NamedTuple):
    """Blocks of one arm: number, fingerprint of the answers in it, and wall seconds."""

    numbers: Ints
    content: IntArray
    seconds: Floats


def block_times(arm: ArmView) -> BlockTimes:
    """Return the blocks of an arm; a block lasts from its first start to its last end."""
    present = arm.outcome.reshape(-1) >= 0
    block = arm.block.reshape(-1)[present]
    numbers, members = np.unique(block, return_inverse=True)
    first = np.full(len(numbers), np.inf)
    last = np.full(len(numbers), -np.inf)
    content = np.zeros(len(numbers), np.int64)
    # One draw for each slot: blocks of equal sums hold equal items, but for a chance of 1e-15.
    tags = np.random.default_rng(SEED).integers(1, 2**46, arm.outcome.size)
    np.minimum.at(first, members, arm.started.reshape(-1)[present])
    np.maximum.at(last, members, arm.ended.reshape(-1)[present])
    np.add.at(content, members, tags[present])
    return BlockTimes(numbers.astype(np.int32), content, last - first)


def arm_seconds(arm: ArmView) -> float:
    """Return the wall seconds of all blocks of an arm; 0 where no time was taken."""
    return float(np.maximum(block_times(arm).seconds, 0.0).sum())


def common_blocks(arm: ArmView, other: ArmView) -> tuple[Floats, Floats]:
    """Return seconds of the blocks in which both arms answered the same items, in order."""
    ours, theirs = block_times(arm), block_times(other)
    _, a, b = np.intersect1d(ours.numbers, theirs.numbers, return_indices=True)
    same = ours.content[a] == theirs.content[b]
    top, bottom = ours.seconds[a][same], theirs.seconds[b][same]
    timed = (top > 0.0) & (bottom > 0.0)
    return top[timed], bottom[timed]


def compared_with(view: RunView, name: str) -> str | None:
    """Return the arm whose time an arm's is held against: graph for MTP, eager for the others."""
    arm = view.arms[name].arm
    other = "graph" if arm.mtp and arm.graph else "eager"
    return other if other != name and other in view.arms else None


def ratios_in(view: RunView, level: float = 0.95) -> dict[str, RatioInterval]:
    """Return wall ratios inside a run by arm, where two blocks or more can be compared."""
    found = {}
    for name, arm in view.arms.items():
        other = compared_with(view, name)
        if other is None:
            continue
        top, bottom = common_blocks(arm, view.arms[other])
        if len(top) >= 2:
            found[name] = ratio_interval(top, bottom, seed=SEED, level=level)
    return found
