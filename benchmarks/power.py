"""Power and false alarms of the accuracy gate beside other projects' rules, by simulation.

    python benchmarks/power.py            writes benchmarks/results/power.md and power.json

`power_model.py` states how runs are drawn. All rules see the same simulated runs. A drop "found
with 80 % power" is the drop at which the run turns red in 80 % of the data sets, by bisection with
the same random numbers at every step. One core, about two minutes; the seed is in the JSON file.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from power_model import (
    ARMS,
    MTP,
    Draws,
    Faulty,
    Model,
    Rule,
    draw,
    floor,
    floor_with_retry,
    judge,
    nemo_compare,
    nemo_gate,
    nemo_go,
)
from power_page import render

from evalsuite.stats import (
    AccuracyRule,
    Interval,
    accuracy_family,
    clopper_pearson,
    drop_upper_bound,
    pair_means,
    stop_probability,
    stopping_rule,
)

SEED = 20260901
CHUNK = 500
POWER = 0.8
BISECTIONS = 8
RESULTS = Path(__file__).resolve().parent / "results"
TRT_POINTS = 1.645 * math.sqrt(2 * 0.25 / 1319)
RULES: dict[str, Rule] = {
    "evalsuite": judge,
    "vLLM: floor - 8 points": floor(0.08),
    "TensorRT-LLM: reference - 3.2 points": floor(TRT_POINTS),
    "ATOM: base - 2.5 points": floor(0.025),
    "ATOM: base - 1.5 points": floor(0.015),
    "SGLang: 200 items, 1.4 points, 2 tries": floor_with_retry(0.014),
    "NeMo Evaluator: gate, NO-GO": nemo_gate,
    "NeMo Evaluator: compare": nemo_compare,
}
OURS = "evalsuite"
SETS, POWER_SETS = 1000, 200


@dataclass(frozen=True, slots=True)
class Row:
    """One rule under one model; drops and rates are proportions."""

    rule: str
    healthy_sets: int
    red: float
    red_high: float
    drop_mtp: float
    drop_one: float


def chunks(model: Model, sets: int, seed: int) -> Iterator[Draws]:
    """Yield `sets` data sets in chunks, reproducibly."""
    rng = np.random.default_rng(seed)
    for start in range(0, sets, CHUNK):
        yield draw(model, min(CHUNK, sets - start), rng)


def red_share(model: Model, rules: dict[str, Rule], sets: int, seed: int) -> dict[str, Interval]:
    """Share of healthy runs that each rule calls red: estimate as low, its 95 % bound as high."""
    red = dict.fromkeys(rules, 0)
    for part in chunks(model, sets, seed):
        for name, rule in rules.items():
            red[name] += int(rule(part.arms, part.baseline, part.retry).sum())
    return {k: Interval(v / sets, clopper_pearson(v, sets).high) for k, v in red.items()}


def detectable(parts: list[Draws], rule: Rule, faulty: Faulty, top: float) -> float:
    """The drop that turns `POWER` of the data sets red, by bisection below `top`."""
    low, high = 0.0, top
    for _ in range(BISECTIONS):
        drop = 0.5 * (low + high)
        found = [
            rule(arms, part.baseline, retry).mean()
            for part in parts
            for arms, retry in [part.with_fault(faulty, drop)]
        ]
        low, high = (low, drop) if np.mean(found) >= POWER else (drop, high)
    return 0.5 * (low + high)


def row(name: str, rule: Rule, model: Model, red: Interval, parts: list[Draws], sets: int) -> Row:
    """Measure one rule under one model."""
    top = 0.15 if rule is not judge else min(0.3, 12.0 * math.sqrt(model.flips / model.n) + 0.01)
    drops = [detectable(parts, rule, faulty, top) for faulty in ("mtp", "one")]
    return Row(name, sets, red.low, red.high, *drops)


def margin_share(model: Model, sets: int, seed: int) -> dict[str, float]:
    """Share of healthy arms shown to be within the margin; NeMo's GO on the same runs."""
    rule, shown, go = AccuracyRule(), [], []
    for part in chunks(model, sets, seed):
        theirs = part.baseline.mean(axis=1)
        losses, gains, effect = pair_means(part.arms * 1.0, theirs, 0.5 + 0.5 / model.runs)
        upper = drop_upper_bound(losses, gains, model.n, rule.margin_level, effect)
        shown.append((upper < rule.margin).mean())
        go.append(nemo_go(part.arms, part.baseline).mean())
    return {"shown": float(np.mean(shown)), "nemo_go": float(np.mean(go))}


def margin_error(model: Model, sets: int, seed: int) -> float:
    """Share of arms with a true drop of exactly the margin that are still called within it."""
    rule, wrong = AccuracyRule(), []
    for part in chunks(model, sets, seed):
        arms, _ = part.with_fault("mtp", rule.margin)
        theirs = part.baseline.mean(axis=1)[:, 2:]
        losses, gains, effect = pair_means(arms[:, 2:] * 1.0, theirs, 0.5 + 0.5 / model.runs)
        upper = drop_upper_bound(losses, gains, model.n, rule.margin_level, effect)
        wrong.append((upper < rule.margin).mean())
    return float(np.mean(wrong))


def abort_table() -> dict[str, Any]:
    """Exact probabilities of stopping an arm within its first 64 items."""
    rule = stopping_rule(0.91)
    accuracies = (0.91, 0.86, 0.7, 0.6, 0.5, 0.3, 0.1, 0.0)
    return {
        "rule": [look._asdict() for look in rule],
        "stopped": {str(a): stop_probability(rule, a) for a in accuracies},
    }


VARIANTS: dict[str, Model] = {
    "baseline of 1 run": Model(runs=1),
    "flips of shape coin": Model(shape="coin"),
    "arms of a run share half of their flips": Model(shared=0.5),
    "arms of a run share all flips": Model(shared=1.0),
    "baseline runs are copies": Model(copies=True),
    "the fault hits the same items in all arms": Model(same_items=True),
    "200 items": Model(n=200),
}


def measure() -> dict[str, Any]:
    """Run everything; returns plain data for the JSON file."""
    started = time.process_time()
    main = Model()
    parts = list(chunks(main, 600, SEED))
    red = red_share(main, RULES, 10_000, SEED + 1)
    peers = [row(k, rule, main, red[k], parts, 10_000) for k, rule in RULES.items()]
    by_flips = []
    for step, flips in enumerate((0.01, 0.015, 0.027, 0.04, 0.066)):
        model = replace(main, flips=flips)
        by_flips.append(ours(f"{100 * flips:g} %", model, SEED + 10 + step))
    variants = [ours(k, m, SEED + 20 + i) for i, (k, m) in enumerate(VARIANTS.items())]
    return {
        "seed": SEED,
        "model": asdict(main),
        "peers": [asdict(r) for r in peers],
        "by_flips": by_flips,
        "variants": variants,
        "abort": abort_table(),
        "seconds": round(time.process_time() - started, 1),
    }


def ours(name: str, model: Model, seed: int) -> dict[str, Any]:
    """This project's rule under one model, with what non-inferiority says."""
    red = red_share(model, {OURS: judge}, SETS, seed)[OURS]
    parts = list(chunks(model, POWER_SETS, seed + 100))
    found = row(name, judge, model, red, parts, SETS)
    return {
        **asdict(found),
        **margin_share(model, 500, seed + 200),
        "margin_error": margin_error(model, 500, seed + 300),
        "stated_one": stated_drop(parts[0]),
    }


def stated_drop(part: Draws, runs: int = 10) -> float:
    """Mean of the smallest detectable drop of `mtp3` that healthy runs' verdicts would print."""
    stated = []
    for one in range(runs):
        arms = {name: part.arms[one, k] for k, name in enumerate(ARMS)}
        baseline = {name: part.baseline[one, :, k] for k, name in enumerate(ARMS)}
        stated.append(accuracy_family(arms, baseline, MTP).detectable["mtp3"])
    return float(np.mean(stated))


def write(found: dict[str, Any]) -> None:
    """Write the JSON file and the tables made from it."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "power.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "power.md").write_text(render(found))


if __name__ == "__main__":
    write(measure())
