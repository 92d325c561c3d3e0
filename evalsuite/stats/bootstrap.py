"""Ratios of wall times with an interval over blocks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RESAMPLES = 4000
LEAST_BLOCKS = 2


class RatioInterval(NamedTuple):
    """Ratio of total times with its bootstrap interval over `blocks` blocks."""

    ratio: float
    low: float
    high: float
    blocks: int


def ratio_interval(
    numerator_s: npt.ArrayLike,
    denominator_s: npt.ArrayLike,
    *,
    seed: int,
    level: float = 0.95,
    resamples: int = RESAMPLES,
) -> RatioInterval:
    """Ratio of summed times and its percentile interval, resampling blocks in pairs.

    Both arguments hold seconds per block, shape (blocks,), the same items in the same block, so a
    slow phase of the machine falls on both and cancels. Source: Efron and Tibshirani 1993, An
    Introduction to the Bootstrap, chapter 13; pairs kept together as in section 9.5. With few
    blocks the interval is too narrow; it is widened by sqrt(blocks / (blocks - 1)) about the
    ratio on the log scale, since resampling n blocks understates a variance by that factor.
    Raises ValueError for fewer than two blocks, shapes that differ, or times that are not positive
    and finite.
    """
    top, bottom = np.asarray(numerator_s, np.float64), np.asarray(denominator_s, np.float64)
    if top.ndim != 1 or top.shape != bottom.shape or len(top) < LEAST_BLOCKS:
        raise ValueError(f"blocks of shape {top.shape} and {bottom.shape} give no interval")
    if not (np.isfinite(top) & np.isfinite(bottom) & (top > 0) & (bottom > 0)).all():
        raise ValueError("block times must be positive and finite")
    blocks = len(top)
    draws = np.random.default_rng(seed).integers(blocks, size=(resamples, blocks))
    centre = np.log(top.sum() / bottom.sum())
    logs = np.log(top[draws].sum(axis=1) / bottom[draws].sum(axis=1)) - centre
    spread = np.quantile(logs, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    low, high = np.exp(centre + spread * np.sqrt(blocks / (blocks - 1.0)))
    return RatioInterval(float(np.exp(centre)), float(low), float(high), blocks)
