"""What a paired comparison can see: power and the smallest detectable drop."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import stats as scipy_stats

from evalsuite.stats.proportions import FloatArray

DropModel = Literal["added", "within"]
_NEGLIGIBLE = 1e-12


def mcnemar_power(n: int, loss_rate: float, gain_rate: float, alpha: float) -> float:
    """Exact power of the one-sided exact McNemar test at level `alpha` on `n` items.

    Items are lost with probability `loss_rate` and gained with `gain_rate`, independently; the sum
    runs over the number of discordant items m ~ Bin(n, loss + gain), given which losses are
    Bin(m, loss / (loss + gain)). Source: Duffy 1984, Biometrics 40:1005-1015 (unconditional power
    of the exact conditional test). Raises ValueError for rates that are no probabilities.
    """
    discordant = loss_rate + gain_rate
    if min(loss_rate, gain_rate) < 0.0 or discordant > 1.0 or n < 1 or not 0.0 < alpha < 1.0:
        raise ValueError(f"no such test: n {n}, rates {loss_rate} {gain_rate}, alpha {alpha}")
    if discordant == 0.0:
        return 0.0
    low, high = scipy_stats.binom.ppf([_NEGLIGIBLE, 1.0 - _NEGLIGIBLE], n, discordant).astype(int)
    m = np.arange(low, high + 1)
    # isf gives the smallest k with P(Bin > k) <= alpha, so that losses >= k + 1 reject.
    critical = scipy_stats.binom.isf(alpha, m, 0.5)
    reject = scipy_stats.binom.sf(critical, m, loss_rate / discordant)
    return float((scipy_stats.binom.pmf(m, n, discordant) * reject).sum())


def smallest_detectable_drop(
    n: int,
    flip_rate: float,
    alpha: float,
    power: float = 0.8,
    *,
    design_effect: float = 1.0,
    model: DropModel = "added",
) -> float:
    """The drop (a proportion) that the exact paired test finds with probability `power`.

    `flip_rate` is the share of items whose correctness differs between two healthy runs.
    model `added`: a fault breaks further items, losses = flips/2 + drop, gains = flips/2. Model
    `within`: the flip rate already includes the drop, losses = (flips + drop)/2, gains =
    (flips - drop)/2; published power tables often use it, and it needs less.
    `design_effect` below 1 stands for answers averaged over several runs (see `pair`): the test is
    computed for n / design_effect items of one answer each, which has the same variance. Returns
    1.0 where even the loss of every item would not be found.
    Raises ValueError for arguments out of range.
    """
    if not 0.0 <= flip_rate < 1.0 or not 0.0 < power < 1.0 or not 0.0 < design_effect <= 1.0:
        raise ValueError(f"flip rate {flip_rate}, power {power} or design effect is out of range")
    items = max(round(n / design_effect), 1)
    largest = 1.0 - flip_rate if model == "added" else flip_rate

    def missing(drop: float) -> float:
        losses, gains = _rates(flip_rate, drop, model)
        return mcnemar_power(items, losses, gains, alpha) - power

    # The search starts low since the exact power costs the more the larger the drop.
    top = min(4.0 * np.sqrt(flip_rate / items) + 16.0 / items, largest)
    while missing(top) < 0.0:
        if top >= largest:
            return 1.0
        top = min(2.0 * top, largest)
    return float(optimize.brentq(missing, 0.0, top, xtol=1e-6, rtol=1e-4))


def detectable_drop(
    ours: FloatArray, theirs: FloatArray, alpha: float, power: float, weights: npt.ArrayLike = 1.0
) -> float:
    """Smallest drop (a proportion) that the weighted paired test would find on these very items.

    `ours` and `theirs` are shares of right answers per item (items,), `weights` as in
    `paired_pvalue`. With T = sum(w * d), d = ours - theirs, a fault that breaks each right answer
    with probability x lowers T by x*A, A = sum(w * theirs), and adds x*B, B = sum(w^2 * theirs), to
    its variance V = sum(w^2 * d^2). T * A/B then has the mean and the variance of a McNemar table
    with V * (A/B)^2 flips and x * A^2/B further losses, whose exact power decides (matching two
    moments, as Satterthwaite 1946, Biometrics Bull. 2:110-114, does for variances). A loss of the
    same items in all pooled arms is assumed, the case that is hardest to see. Returns at most 1.0;
    1.0 too where no answer is right.
    """
    w = np.asarray(weights, np.float64)
    a, b = float((w * theirs).sum()), float((w * w * theirs).sum())
    if a == 0.0:
        return 1.0
    n = len(theirs)
    flips = float((w * w * (ours - theirs) ** 2).sum()) * (a / b) ** 2 / n
    losses = smallest_detectable_drop(n, min(flips, 0.99), alpha, power)
    return min(losses * n * b / a**2 * float(theirs.mean()), 1.0)


def _rates(flip_rate: float, drop: float, model: DropModel) -> tuple[float, float]:
    if model == "added":
        return flip_rate / 2.0 + drop, flip_rate / 2.0
    return (flip_rate + drop) / 2.0, max(flip_rate - drop, 0.0) / 2.0
