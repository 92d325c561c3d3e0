"""Single proportions and Holm's adjustment."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


def wilson(correct: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval for `correct` of `n` (Wilson 1927, JASA 22:209-212).

    Raises ValueError where `correct` is outside 0..n, n < 1 or level outside (0, 1).
    """
    return _proportion_interval(correct, n, level, "wilson")


def clopper_pearson(correct: int, n: int, level: float = 0.95) -> Interval:
    """The exact interval for `correct` of `n` (Clopper and Pearson 1934, Biometrika 26:404-413).

    Raises as `wilson` does.
    """
    return _proportion_interval(correct, n, level, "exact")


def flip_rate(answers: npt.ArrayLike) -> float:
    """Share of items whose correctness differs between two runs, averaged over pairs of runs.

    `answers` has shape (runs, items), 0 or 1. With k of R runs right on an item, 2k(R-k)/(R(R-1))
    of its pairs differ. Raises ValueError for fewer than two runs or no items.
    """
    right = binary_answers(answers, "answers")
    runs, items = right.shape
    if runs < 2 or items < 1:
        raise ValueError(f"flip_rate needs two runs and one item, got {runs} and {items}")
    k = right.sum(axis=0)
    return float(np.mean(2.0 * k * (runs - k) / (runs * (runs - 1))))


def holm(pvalues: npt.ArrayLike) -> FloatArray:
    """Holm's adjusted p-values along the last axis (Holm 1979, Scand. J. Statist. 6:65-70).

    Rejecting where the adjusted value is at most alpha keeps the family-wise error at alpha under
    any dependence. NaN is refused with ValueError: a missing test has to be left out, not guessed.
    """
    p = np.asarray(pvalues, dtype=np.float64)
    if np.isnan(p).any():
        raise ValueError("holm: NaN among the p-values")
    order = np.argsort(p, axis=-1, kind="stable")
    remaining = np.arange(p.shape[-1], 0, -1)
    stepped = np.maximum.accumulate(np.take_along_axis(p, order, -1) * remaining, axis=-1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.minimum(stepped, 1.0), axis=-1)
    return adjusted


def binary_answers(values: npt.ArrayLike, name: str) -> IntArray:
    """Return `values` as int64 of shape (units, items); a single row may come without its axis.

    Raises ValueError where anything but 0, 1 or a boolean is in it, or the shape does not fit.
    """
    array = np.asarray(values)
    if array.ndim == 1:
        array = array[np.newaxis]
    if array.ndim != 2:
        raise ValueError(f"{name}: shape {array.shape} is not (units, items)")
    if not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name}: only 0 and 1 can be answers' correctness")
    return array.astype(np.int64)


def _proportion_interval(
    correct: int, n: int, level: float, method: Literal["wilson", "exact"]
) -> Interval:
    if n < 1 or not 0 <= correct <= n:
        raise ValueError(f"{correct} of {n} is no proportion")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level {level} is outside (0, 1)")
    found = scipy_stats.binomtest(correct, n).proportion_ci(level, method=method)
    return Interval(float(found.low), float(found.high))
