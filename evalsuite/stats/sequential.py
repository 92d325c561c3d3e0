"""Early abort: stop an arm that is so wrong on its first items that chance cannot explain it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats as scipy_stats

LOOKS = (32, 64)
LEVEL = 1e-6


class Look(NamedTuple):
    """Stop after `items` items when at most `stop_at` are right; -1 where no count would stop."""

    items: int
    stop_at: int


def stopping_rule(
    accuracy: float, looks: Sequence[int] = LOOKS, level: float = LEVEL
) -> tuple[Look, ...]:
    """For each look, the largest count c with P(Bin(items, accuracy) <= c) < `level`.

    `accuracy` is the baseline's. By the union bound the rule stops a healthy arm with probability
    below `level` times the number of looks; `stop_probability` gives the exact figure.
    Raises ValueError for an accuracy outside 0..1, a level outside (0, 1) or looks not increasing.
    """
    if not 0.0 <= accuracy <= 1.0 or not 0.0 < level < 1.0:
        raise ValueError(f"accuracy {accuracy} or level {level} is out of range")
    if not looks or any(b <= a for a, b in zip((0, *looks), looks, strict=False)):
        raise ValueError(f"looks {tuple(looks)} do not increase from 1")
    return tuple(Look(items, _stop_at(items, accuracy, level)) for items in looks)


def stop_probability(rule: Sequence[Look], accuracy: float) -> float:
    """Exact probability that an arm of true `accuracy` is stopped at one of the looks.

    The distribution of right answers is carried from look to look with the stopped part cut off
    (Armitage, McPherson and Rowe 1969, J. R. Statist. Soc. A 132:235-244).
    """
    running = np.ones(1)
    stopped, done = 0.0, 0
    for look in rule:
        added = look.items - done
        step = scipy_stats.binom.pmf(np.arange(added + 1), added, accuracy)
        running = np.convolve(running, step)
        stopped += float(running[: look.stop_at + 1].sum())
        running[: look.stop_at + 1] = 0.0
        done = look.items
    return stopped


def stopping_look(correct: Sequence[bool], rule: Sequence[Look]) -> Look | None:
    """Return the first look at which `correct`, in the plan's order, asks to stop, or None."""
    for look in rule:
        if len(correct) >= look.items and sum(correct[: look.items]) <= look.stop_at:
            return look
    return None


def _stop_at(items: int, accuracy: float, level: float) -> int:
    below = scipy_stats.binom.cdf(np.arange(items + 1), items, accuracy) < level
    return int(np.count_nonzero(below)) - 1
