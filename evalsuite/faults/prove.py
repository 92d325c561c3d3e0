"""`evalsuite prove`: inject faults, show which check caught each, and count false alarms.

Each fault is held against a healthy run of the same checkpoint that this command makes itself, by
the judge that judges every run. So it works on any checkpoint and machine, without a baseline.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import RenderableType

from evalsuite.errors import EXIT_FAIL, EXIT_PASS, UsageError
from evalsuite.faults.bench import Bench
from evalsuite.faults.catalogue import choose
from evalsuite.faults.healthy import ARMS, HealthyRun, run_healthy, variations
from evalsuite.faults.trial import Trial, try_fault
from evalsuite.paths import RUNS

ITEMS = {"cpu": 128, "cuda": 256}
QUICK_ITEMS = 32
QUICK_ARMS = ("eager", "graph", "mtp3")
# Of healthy runs at most so many may alarm: one in ten.
ALARMS = 0.1


@dataclass(frozen=True)
class Asked:
    """What the command line asks: which faults, how many items at most and healthy runs."""

    faults: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    quick: bool = False
    device: str | None = None
    items: int | None = None
    healthy: int | None = None
    model: str | None = None
    out: Path | None = None


@dataclass(frozen=True)
class Proof:
    """All trials and healthy runs, and on what they were made."""

    trials: list[Trial]
    healthy: list[HealthyRun]
    machine: dict[str, Any]
    seconds: float
    folder: Path

    @property
    def caught(self) -> int:
        """Faults that the gate was red for."""
        return sum(trial.caught for trial in self.trials)

    @property
    def false_alarms(self) -> int:
        """Healthy runs that the gate was red for."""
        return sum(bool(run.alarms) for run in self.healthy)

    @property
    def exit_code(self) -> int:
        """0 where every fault that can be seen was caught by a check that should, and healthy runs
        stayed green but for one in ten."""
        quiet = self.false_alarms <= max(ALARMS * len(self.healthy), 0)
        return EXIT_PASS if quiet and all(t.right for t in self.trials) else EXIT_FAIL

    def as_json(self) -> dict[str, Any]:
        """The one object of `--json`."""
        return {
            "faults": [trial.as_json() for trial in self.trials],
            "caught": self.caught,
            "total": len(self.trials),
            "false_alarms": self.false_alarms,
            "healthy": [run.as_json() for run in self.healthy],
            "machine": self.machine,
            "seconds": round(self.seconds, 1),
            "folder": str(self.folder),
        }

    def renderables(self) -> list[RenderableType]:
        """What a person reads."""
        from evalsuite.faults.tables import terminal

        return [*terminal(self.as_json()), f"report: {self.folder / 'prove.html'}"]


def prove_faults(
    faults: Sequence[str] = (),
    *,
    families: Sequence[str] = (),
    quick: bool = False,
    device: str | None = None,
    items: int | None = None,
    healthy: int | None = None,
    model: str | None = None,
    out: Path | None = None,
) -> Proof:
    """Prove the gate on `faults` and `families` (all where nothing is named).

    `quick`: the twelve faults of the quick proof, fewer items. `items`: the most of a trial.
    `healthy`: how many healthy runs. Raises UsageError for what there is not.
    """
    asked = Asked(tuple(faults), tuple(families), quick, device, items, healthy, model, out)
    chosen = choose(asked.faults, asked.families, quick=quick)
    where = _device(device)
    most = items or (QUICK_ITEMS if quick else ITEMS[where])
    folder = out or RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-prove"
    if (folder / "prove.json").exists():
        raise UsageError("holds a proof already", file=folder)
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="evalsuite-prove-") as scratch:
        bench = Bench(Path(scratch), where, most, model)
        try:
            proof = Proof([], [], _machine(bench), 0.0, folder)
            for fault in chosen:
                proof.trials.append(_announced(bench, fault, Path(scratch) / fault.id))
                proof = _saved(proof, begun)
            proof.healthy.extend(_healthy(bench, asked, most, Path(scratch)))
        finally:
            bench.close()
    return _saved(proof, begun)


def _saved(proof: Proof, begun: float) -> Proof:
    """Write what there is so far: a proof that is broken off keeps its trials."""
    from evalsuite.faults.tables import write

    proof = replace(proof, seconds=time.monotonic() - begun)
    write(proof.as_json(), proof.folder / "prove")
    return proof


def _announced(bench: Bench, fault: Any, folder: Path) -> Trial:
    trial = try_fault(bench, fault, folder)
    word = "caught by " + ", ".join(trial.checks) if trial.caught else "not caught"
    if trial.problem:
        word = f"not tried: {trial.problem}"
    _tell(f"{fault.id} {word} ({trial.items} items, {trial.seconds:.0f} s)")
    return trial


def _healthy(bench: Bench, asked: Asked, most: int, scratch: Path) -> list[HealthyRun]:
    count = asked.healthy
    if count is None:
        named = bool(asked.faults or asked.families)
        count = 0 if named and not asked.quick else 2 if asked.quick else 10
    arms = QUICK_ARMS if asked.quick else ARMS
    runs = []
    for varied in variations(count):
        run = run_healthy(bench, varied, min(most, 128), arms, scratch / varied.name)
        alarms = f"ALARM {run.says}" if run.alarms else "green"
        _tell(f"healthy, {run.name}: {alarms} ({run.seconds:.0f} s)")
        runs.append(run)
    return runs


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _device(name: str | None) -> str:
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise UsageError(f"{name!r} is neither cpu nor cuda", field="device")
    return name


def _machine(bench: Bench) -> dict[str, Any]:
    told = bench.remembering().describe()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "hardware": dict(told.hardware),
        "software": dict(told.software),
        "dtype": told.dtype,
        "model_hash": told.model_hash,
        "items": bench.most,
        "batch": bench.batch,
    }
