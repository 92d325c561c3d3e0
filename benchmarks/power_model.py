"""Simulated evaluation runs, and the accuracy rules that are compared on them.

The model. Item i is answered right with probability q_i, fixed by the model's weights and the item;
rounding decides anew in every run. Two independent answers differ with probability 2q(1-q), so the
flip rate D, the share of items whose correctness differs between two healthy runs, is the mean of
2q(1-q). Two shapes of q with mean p and flip rate D:

    beta   q ~ Beta(p*s, (1-p)*s) with s/(s+1) = D / (2p(1-p)): most items nearly sure, the
           unsure ones mostly right. Flips are skewed, which is hard on sign-flip tests.
    coin   a share 2D of the items has q = 1/2, all others are always right or always wrong.

The arms of one run may share their rounding: with probability `shared`, separately for each item
and arm, an arm takes the run's common draw in place of its own. 0: arms are independent; 1: all
arms of a run answer alike, and still differ from other runs with rate D. `copies` makes the
baseline's runs repeat each other (a deterministic engine that later changed its rounding).

A fault of size d turns each right answer of the faulty arms wrong with probability d/p, so that
their accuracy falls by d on average; arms are hit on their own items or, `same_items`, together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from evalsuite.stats import AccuracyRule, family_pvalues, holm, mcnemar

ARMS = ("eager", "graph", "mtp1", "mtp2", "mtp3", "mtp4", "mtp5")
MTP = ARMS[2:]
RETRY_ITEMS = 200
Bools = npt.NDArray[np.bool_]
Answers = npt.NDArray[np.int8]
Faulty = Literal["none", "one", "mtp"]
Rule = Callable[[Answers, Answers, Answers], Bools]


@dataclass(frozen=True, slots=True)
class Model:
    """Parameters of the simulation; see the module's text."""

    n: int = 1319
    p: float = 0.91
    flips: float = 0.027
    runs: int = 3
    shape: Literal["beta", "coin"] = "beta"
    shared: float = 0.0
    copies: bool = False
    same_items: bool = False


@dataclass(frozen=True, slots=True)
class Draws:
    """Healthy answers of many data sets, and the luck that decides which ones a fault breaks.

    baseline (sets, runs, arms, n), arms and retry (sets, arms, n), luck (sets, arms or 1, n).
    """

    model: Model
    baseline: Answers
    arms: Answers
    retry: Answers
    luck: npt.NDArray[np.float32]

    def with_fault(self, faulty: Faulty, drop: float) -> tuple[Answers, Answers]:
        """Return arms and retry with `drop` lost in the third MTP arm or in all MTP arms."""
        hit = np.zeros(len(ARMS), dtype=bool)
        if faulty != "none":
            hit[2:] = True if faulty == "mtp" else [name == "mtp3" for name in MTP]
        kept = (self.luck >= drop / self.model.p) | ~hit[:, np.newaxis]
        return self.arms * kept, self.retry * kept[..., : self.retry.shape[-1]]


def draw(model: Model, sets: int, rng: np.random.Generator) -> Draws:
    """Draw `sets` independent data sets, each one baseline and one run."""
    q = _item_rates(model, (sets, 1, 1, model.n), rng)
    shape = (sets, model.runs + 1, len(ARMS), model.n)
    answers = rng.random(shape, dtype=np.float32) < q
    if model.shared > 0.0:
        common = rng.random((sets, model.runs + 1, 1, model.n), dtype=np.float32) < q
        answers = np.where(rng.random(shape, dtype=np.float32) < model.shared, common, answers)
    baseline = answers[:, :-1]
    if model.copies:
        baseline = np.repeat(baseline[:, :1], model.runs, axis=1)
    retry = rng.random((sets, len(ARMS), min(RETRY_ITEMS, model.n)), dtype=np.float32)
    lucky = (sets, 1 if model.same_items else len(ARMS), model.n)
    return Draws(
        model=model,
        baseline=baseline.astype(np.int8),
        arms=answers[:, -1].astype(np.int8),
        retry=(retry < q[:, 0, :, : retry.shape[-1]]).astype(np.int8),
        luck=rng.random(lucky, dtype=np.float32),
    )


def _item_rates(
    model: Model, shape: tuple[int, ...], rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    if model.shape == "coin":
        sure = (model.p - model.flips) / (1.0 - 2.0 * model.flips)
        fixed = rng.random(shape) < sure
        return np.where(rng.random(shape) < 2.0 * model.flips, 0.5, fixed).astype(np.float32)
    ratio = model.flips / (2.0 * model.p * (1.0 - model.p))
    size = ratio / (1.0 - ratio)
    return rng.beta(model.p * size, (1.0 - model.p) * size, size=shape).astype(np.float32)


def judge(arms: Answers, baseline: Answers, retry: Answers) -> Bools:
    """This project's rule: the family of `accuracy_family` at its fail level, or a hard drop."""
    rule = AccuracyRule()
    ours = {name: arms[:, [k]].astype(np.int64) for k, name in enumerate(ARMS)}
    theirs = {name: baseline[:, :, k].astype(np.int64) for k, name in enumerate(ARMS)}
    family = family_pvalues(ours, theirs, MTP)
    red = (holm(np.stack(list(family.values()), axis=-1)) <= rule.fail_level).any(axis=-1)
    if arms.shape[-1] < rule.hard_drop_items:
        return np.asarray(red)
    drops = baseline.mean(axis=(1, 3)) - arms.mean(axis=-1)
    return np.asarray(red | (drops > rule.hard_drop).any(axis=-1))


def floor(points: float) -> Rule:
    """A fixed floor `points` below the baseline's accuracy, each arm on its own."""

    def rule(arms: Answers, baseline: Answers, retry: Answers) -> Bools:
        return (arms.mean(axis=-1) < baseline.mean(axis=(1, 3)) - points).any(axis=-1)

    return rule


def floor_with_retry(points: float) -> Rule:
    """The first 200 items, fixed floor, and a second try that may pass in the first's place."""

    def rule(arms: Answers, baseline: Answers, retry: Answers) -> Bools:
        limit = baseline.mean(axis=(1, 3)) - points
        first = arms[..., :RETRY_ITEMS].mean(axis=-1) < limit
        return (first & (retry.mean(axis=-1) < limit)).any(axis=-1)

    return rule


def nemo_gate(arms: Answers, baseline: Answers, retry: Answers) -> Bools:
    """Paired 95 % interval against one baseline run; red when wholly below -1.5 points."""
    delta, half = _paired_normal(arms, baseline)
    return (delta + half < -0.015).any(axis=-1)


def nemo_go(arms: Answers, baseline: Answers) -> Bools:
    """Per arm (sets, arms): the interval lies wholly above -1.5 points."""
    delta, half = _paired_normal(arms, baseline)
    return delta - half > -0.015


def nemo_compare(arms: Answers, baseline: Answers, retry: Answers) -> Bools:
    """One-sided exact McNemar per arm at .05 and an effect above half a point."""
    losses = (baseline[:, 0] > arms).sum(axis=-1)
    gains = (baseline[:, 0] < arms).sum(axis=-1)
    effect = (losses - gains) / arms.shape[-1]
    return ((mcnemar(losses, gains) < 0.05) & (effect > 0.005)).any(axis=-1)


def _paired_normal(
    arms: Answers, baseline: Answers
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    difference = arms - baseline[:, 0]
    n = difference.shape[-1]
    delta = difference.mean(axis=-1)
    variance = (difference != 0).mean(axis=-1) - delta**2
    return delta, 1.96 * np.sqrt(variance / n)
