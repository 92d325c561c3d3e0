"""What a paired comparison can see: power and the smallest detectable drop."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy import optimize
from scipy import stats as scipy_stats

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

    if largest <= 0.0 or missing(largest) < 0.0:
        return 1.0
    return float(optimize.brentq(missing, 0.0, largest, xtol=1e-6))


def _rates(flip_rate: float, drop: float, model: DropModel) -> tuple[float, float]:
    if model == "added":
        return flip_rate / 2.0 + drop, flip_rate / 2.0
    return (flip_rate + drop) / 2.0, max(flip_rate - drop, 0.0) / 2.0
