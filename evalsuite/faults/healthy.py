"""Healthy runs that differ in all that must not matter, and the alarms among them."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalsuite.faults.bench import Bench, judged, reasons_of
from evalsuite.faults.remembering import RememberingEngine
from evalsuite.faults.stress import NONE

ARMS = ("eager", "graph", "mtp1", "mtp2", "mtp3", "mtp4", "mtp5")


@dataclass(frozen=True)
class Variation:
    """`order`: seed of the items' order (None: the plan's). `batch`: requests at once, as a share
    of the usual. `chunk`: tokens of a step, for each request at once. `options`: of the session.
    `timed`: it loads the engine as the usual run does, so that wall times can be held against that
    one's."""

    name: str
    order: int | None = None
    batch: float = 1.0
    chunk: int | None = None
    options: tuple[tuple[str, Any], ...] = ()
    timed: bool = False


def variations(count: int) -> list[Variation]:
    """`count` variations, every kind in turn, each with a seed of its own."""
    kinds = [
        lambda n: Variation(f"order {n}", order=n, timed=True),
        lambda n: Variation(f"blocks shuffled {n}", options=(("shuffle_seed", n),), timed=True),
        lambda n: Variation(f"order {n}, batch of 3/4", order=n, batch=0.75),
        lambda n: Variation(f"order {n}, batch of 3/8", order=n, batch=0.375),
        lambda n: Variation(f"order {n}, small chunks", order=n, chunk=16),
        lambda n: Variation(
            f"order {n}, no prefix cache", order=n, options=(("prefix_caching", False),)
        ),
    ]
    return [kinds[n % len(kinds)](n) for n in range(count)]


@dataclass(frozen=True)
class HealthyRun:
    """One healthy run: `alarms` are the checks that failed all the same."""

    name: str
    items: int
    seconds: float
    alarms: tuple[str, ...]
    says: str

    def as_json(self) -> dict[str, Any]:
        """One row of `healthy` in `prove --json`."""
        return {
            "name": self.name,
            "items": self.items,
            "seconds": round(self.seconds, 1),
            "alarms": list(self.alarms),
            "says": self.says,
        }


def run_healthy(
    bench: Bench, varied: Variation, items: int, arms: tuple[str, ...], folder: Path
) -> HealthyRun:
    """Run the engine as it is under a variation, and judge it as any other run."""
    chosen = list(bench.items[:items])
    bench.healthy(NONE).view(arms, items)
    begun = time.monotonic()
    if varied.order is not None:
        random.Random(varied.order).shuffle(chosen)
    batch = max(1, round(bench.batch * varied.batch))
    options = {**bench.options(NONE), "graph_batches": [batch], **dict(varied.options)}
    if varied.chunk is not None:
        options["max_num_batched_tokens"] = varied.chunk * batch
    engine = RememberingEngine(bench.engine(options, batch), bench.requests())
    try:
        bench.execute(engine, arms, chosen, folder)
    finally:
        engine.close()
    held = bench.healthy(NONE).reference(arms, [entry.item.item_id for entry in chosen])
    _, verdict = judged(bench, folder, held)
    reasons = reasons_of(verdict, timed=varied.timed)
    return HealthyRun(
        varied.name,
        items,
        time.monotonic() - begun,
        tuple(dict.fromkeys(finding.check for finding in reasons)),
        f"{reasons[0].check}: {reasons[0].message}" if reasons else "",
    )
