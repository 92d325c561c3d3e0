"""Exact tests of one run against several: who of these answers is the candidate's?

Notation: an item has U candidate units and V baseline units. A unit is one answer (0 or 1), or the
number of right answers among several arms of one run, so that arms that share a run stay together.

Two null models, both conditional on what was observed and both exact, their distributions found by
inverting the characteristic function on an integer lattice:

exchange   All U + V units of an item come from one source, so that any U of them could have been
           the candidate's. For single answers the item's total is hypergeometric; with U = V = 1
           this is McNemar's exact test, with U = 1 the exact test for 1:V matched sets (Breslow and
           Day 1980, Statistical Methods in Cancer Research I, chapter 5). It needs the baseline
           runs to differ among themselves as the candidate differs from them. It fails for an
           engine whose runs repeat each other: three copies then count as three witnesses.
sign flip  Each item's difference between the candidate's mean and the baseline's could as well have
           had the other sign (Fisher 1935, The Design of Experiments, section 21). Copies do no
           harm: they leave the differences of a single baseline run. But differences of means are
           skewed where V > U, which makes it slightly liberal far in the tail.

`paired_pvalue` takes the larger of the two. It is valid where either model is, so both for noisy
and for deterministic engines.

Weights. A lost answer tells more on an item that is always answered right than on one that flips
anyway: for a fault that breaks each right answer with equal probability, the score of an item with
success rate q is 1 / (1 - q) per loss (Cox and Hinkley 1974, Theoretical Statistics, section 4.8).
`Bystanders` estimates q from answers that are not under test. A permutation test stays exact under
any weights that its permutations leave alone. So q is read from both sides alike: over all units
for the exchange (every unit counts the same), as the mean of the two sides for the sign flip (the
candidate's side counts as much as the baseline's). Weights read from the baseline alone would be
wrong: where the arms of a run share their rounding, items steady in the baseline can only be lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft as scipy_fft

from evalsuite.stats.paired import Alternative
from evalsuite.stats.proportions import FloatArray, IntArray

P_FLOOR = 1e-12
_FREQUENCIES_AT_ONCE = 4096
_LARGEST_TABLE = 1 << 20
_TINY = 1e-280


class Bystanders(NamedTuple):
    """Answers that are not under test but show how steady each item is.

    `ours` and `theirs` (..., items) count the right ones among `our_answers` of the candidate's
    side and `their_answers` of the baseline's. The two sides must relate to each other as candidate
    and baseline do (other arms of the same runs).
    """

    ours: IntArray
    our_answers: int
    theirs: IntArray
    their_answers: int


def paired_pvalue(
    candidate: npt.ArrayLike,
    baseline: npt.ArrayLike,
    alternative: Alternative = "less",
    bystanders: Bystanders | None = None,
) -> FloatArray:
    """p-values of candidate units (..., U, items) against baseline units (..., V, items).

    Leading axes are separate data sets; the result has their shape. `less`: is the candidate's
    total lower than chance allows. Below `P_FLOOR`, where the inversion's rounding ends, the floor
    is returned. Raises ValueError for shapes that do not fit, no unit, or negative units.
    """
    return np.maximum(
        exchange_pvalue(candidate, baseline, alternative, bystanders),
        sign_flip_pvalue(candidate, baseline, alternative, bystanders),
    )


def exchange_pvalue(
    candidate: npt.ArrayLike,
    baseline: npt.ArrayLike,
    alternative: Alternative = "less",
    bystanders: Bystanders | None = None,
) -> FloatArray:
    """Exact p-values under exchange of units within items; arguments as for `paired_pvalue`."""
    ours, theirs = _units(candidate, baseline)
    if alternative == "two-sided":
        return _two_sided(
            exchange_pvalue(ours, theirs, "less", bystanders),
            exchange_pvalue(ours, theirs, "greater", bystanders),
        )
    if alternative == "greater":
        ours, theirs = _mirrored(ours, theirs)
    weights = _exchange_weights(bystanders, ours)
    everyone = np.concatenate([ours, theirs], axis=-2)
    everyone = everyone.reshape(-1, *everyone.shape[-2:])
    data_set, item = np.nonzero(everyone.max(axis=1) != everyone.min(axis=1))
    rows = everyone[data_set, :, item]
    rows = rows - rows.min(axis=1, keepdims=True)
    drawn = ours.shape[-2]
    weight = weights[data_set, item]
    classes, members = _classes(np.column_stack([weight, np.sort(rows, axis=1)]))
    pmfs = [_draw_pmf(values[1:], drawn, int(values[0])) for values in classes]
    observed = weight * rows[:, :drawn].sum(axis=1)
    lower = _lower_tail(pmfs, members, data_set, observed, len(everyone))
    return lower.reshape(ours.shape[:-2])


def sign_flip_pvalue(
    candidate: npt.ArrayLike,
    baseline: npt.ArrayLike,
    alternative: Alternative = "less",
    bystanders: Bystanders | None = None,
) -> FloatArray:
    """Exact p-values under flipping items' differences; arguments as for `paired_pvalue`."""
    ours, theirs = _units(candidate, baseline)
    if alternative == "two-sided":
        return _two_sided(
            sign_flip_pvalue(ours, theirs, "less", bystanders),
            sign_flip_pvalue(ours, theirs, "greater", bystanders),
        )
    difference = theirs.shape[-2] * ours.sum(axis=-2) - ours.shape[-2] * theirs.sum(axis=-2)
    if alternative == "greater":
        difference = -difference
    flat = difference.reshape(-1, difference.shape[-1])
    weights = flip_weights(bystanders, ours)
    data_set, item = np.nonzero(flat)
    signed = weights[data_set, item] * flat[data_set, item]
    signed = signed // max(int(np.gcd.reduce(signed)), 1)
    sizes, members = _distinct(np.abs(signed))
    pmfs = [_coin_pmf(int(size)) for size in sizes]
    lower = _lower_tail(pmfs, members, data_set, np.maximum(signed, 0), len(flat))
    return lower.reshape(difference.shape[:-1])


def _exchange_weights(bystanders: Bystanders | None, ours: IntArray) -> IntArray:
    shape = (math.prod(ours.shape[:-2]), ours.shape[-1])
    if bystanders is None:
        return np.ones(shape, dtype=np.int64)
    answers = bystanders.our_answers + bystanders.their_answers
    return steadiness((bystanders.ours + bystanders.theirs) / answers, answers).reshape(shape)


def flip_weights(bystanders: Bystanders | None, ours: IntArray) -> IntArray:
    """Weights (data sets, items) of the sign flip for candidate units `ours` (..., U, items)."""
    shape = (math.prod(ours.shape[:-2]), ours.shape[-1])
    if bystanders is None:
        return np.ones(shape, dtype=np.int64)
    our_rate = bystanders.ours / bystanders.our_answers
    their_rate = bystanders.theirs / bystanders.their_answers
    answers = bystanders.our_answers + bystanders.their_answers
    return steadiness(0.5 * (our_rate + their_rate), answers).reshape(shape)


def steadiness(rate: FloatArray, answers: int) -> IntArray:
    """Integer weights near 1 / (1 - q), q estimated from `answers` answers of mean `rate`.

    q = (answers * rate + 1) / (answers + 2), Laplace's rule of succession, so that no item counts
    as perfectly steady.
    """
    wrong = answers * (1.0 - rate) + 1.0
    return np.maximum(np.rint((answers + 2.0) / wrong), 1.0).astype(np.int64)


def _units(candidate: npt.ArrayLike, baseline: npt.ArrayLike) -> tuple[IntArray, IntArray]:
    ours, theirs = np.asarray(candidate, np.int64), np.asarray(baseline, np.int64)
    if min(ours.ndim, theirs.ndim) < 2 or 0 in (ours.shape[-2], theirs.shape[-2]):
        raise ValueError(f"units need shape (..., units, items): {ours.shape}, {theirs.shape}")
    if ours.shape[:-2] != theirs.shape[:-2] or ours.shape[-1] != theirs.shape[-1]:
        raise ValueError(f"units of shape {ours.shape} and {theirs.shape} cannot be paired")
    if (ours < 0).any() or (theirs < 0).any():
        raise ValueError("units cannot be negative")
    return ours, theirs


def _mirrored(ours: IntArray, theirs: IntArray) -> tuple[IntArray, IntArray]:
    top = max(ours.max(initial=0), theirs.max(initial=0))
    return top - ours, top - theirs


def _two_sided(lower: FloatArray, upper: FloatArray) -> FloatArray:
    return np.minimum(2.0 * np.minimum(lower, upper), 1.0)


def _classes(rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct rows and, for each row, which of them it is."""
    base = int(rows.max(initial=0)) + 1
    if base ** rows.shape[1] >= 2**62:
        classes, members = np.unique(rows, axis=0, return_inverse=True)
        return classes, members.reshape(-1)
    digits = base ** np.arange(rows.shape[1], dtype=np.int64)
    codes, members = _distinct(rows @ digits)
    return codes[:, np.newaxis] // digits % base, members


def _distinct(codes: IntArray) -> tuple[IntArray, IntArray]:
    """`np.unique` with inverse for codes >= 0, by counting where they are small (faster)."""
    top = int(codes.max(initial=0))
    if top > _LARGEST_TABLE:
        distinct, members = np.unique(codes, return_inverse=True)
        return distinct, members.reshape(-1)
    distinct = np.flatnonzero(np.bincount(codes, minlength=1))
    rank = np.zeros(top + 1, dtype=np.int64)
    rank[distinct] = np.arange(len(distinct))
    return distinct, rank[codes]


def _draw_pmf(values: IntArray, drawn: int, weight: int) -> FloatArray:
    """Distribution of `weight` times the sum of `drawn` of `values`, without replacement."""
    top = int(np.sort(values)[-drawn:].sum())
    ways = np.zeros((drawn + 1, top + 1))
    ways[0, 0] = 1.0
    for value in map(int, values):
        grown = ways.copy()
        grown[1:, value:] += ways[:-1, : top + 1 - value]
        ways = grown
    pmf = np.zeros(weight * top + 1)
    pmf[::weight] = ways[drawn] / ways[drawn].sum()
    return pmf


def _coin_pmf(weight: int) -> FloatArray:
    pmf = np.zeros(weight + 1)
    pmf[0] = pmf[-1] = 0.5
    return pmf


def _lower_tail(
    pmfs: Sequence[FloatArray],
    members: IntArray,
    data_set: IntArray,
    observed: IntArray,
    data_sets: int,
) -> FloatArray:
    """P(sum of independent draws <= sum of `observed`) per data set; `members` index `pmfs`."""
    if len(members) == 0:
        return np.ones(data_sets)
    tally = np.bincount(data_set * len(pmfs) + members, minlength=data_sets * len(pmfs))
    counts = tally.reshape(data_sets, len(pmfs)).astype(np.float64)
    total = np.bincount(data_set, weights=observed, minlength=data_sets).round().astype(np.int64)
    widest = int((counts @ np.array([len(pmf) - 1 for pmf in pmfs])).max())
    length = int(scipy_fft.next_fast_len(widest + 1, real=True))
    spectrum = _spectrum(pmfs, counts, length)
    cumulative = np.cumsum(scipy_fft.irfft(spectrum, n=length, axis=-1), axis=-1)
    lower = np.take_along_axis(cumulative, total[:, np.newaxis], axis=-1)[:, 0]
    return np.asarray(np.clip(lower, P_FLOOR, 1.0), dtype=np.float64)


def _spectrum(
    pmfs: Sequence[FloatArray], counts: FloatArray, length: int
) -> npt.NDArray[np.complex128]:
    table = np.zeros((len(pmfs), max(len(pmf) for pmf in pmfs)))
    for row, pmf in zip(table, pmfs, strict=True):
        row[: len(pmf)] = pmf
    spectrum = np.empty((len(counts), length // 2 + 1), dtype=np.complex128)
    for start in range(0, spectrum.shape[1], _FREQUENCIES_AT_ONCE):
        part = np.arange(start, min(start + _FREQUENCIES_AT_ONCE, spectrum.shape[1]))
        angle = np.outer(np.arange(table.shape[1]), part) % length * (-2.0 * np.pi / length)
        phi = table @ np.exp(1j * angle)
        # A zero of phi has to stay zero at any power above 0 and become 1 at power 0.
        logs = np.log(np.where(np.abs(phi) < _TINY, _TINY, phi))
        spectrum[:, part] = np.exp(counts @ logs)
    return spectrum
