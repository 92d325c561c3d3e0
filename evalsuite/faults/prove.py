"""`evalsuite prove`: inject faults, show which check caught each, and count false alarms.

Each fault is held against a healthy run of the same checkpoint that this command makes itself, by
the judge that judges every run. So it works on any checkpoint and machine, without a baseline.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import RenderableType

from evalsuite.errors import EXIT_FAIL, EXIT_PASS, UsageError
from evalsuite.faults.catalogue import FAULTS, choose
from evalsuite.faults.healthy import ARMS, HealthyRun, Variation, variations
from evalsuite.faults.trial import Trial
from evalsuite.faults.workers import Done, Row, Task, carried_out
from evalsuite.faults.workshop import Setting, machine_of, workshop
from evalsuite.paths import new_folder

# Single margins jump in bfloat16, so that a rare fault needs more answers there.
ITEMS = {"cpu": 128, "cuda": 512}
QUICK_ITEMS = 32
QUICK_ARMS = ("eager", "graph", "mtp3")
# Of healthy runs at most so many may alarm: one in ten.
ALARMS = 0.1
# Seconds of processor time that one trial or healthy run may take. They need a tenth of it.
LIMIT = 1200
# Each process holds weights, graphs and a healthy run of its own: 2 to 5 GB of a host's memory.
MOST_JOBS = {"cpu": 4, "cuda": 8}


@dataclass(frozen=True)
class Proof:
    """Rows of all trials and healthy runs, and on what they were made in how many processes."""

    machine: dict[str, Any]
    folder: Path
    faults: list[Row] = field(default_factory=list)
    healthy: list[Row] = field(default_factory=list)
    jobs: int = 1
    seconds: float = 0.0

    @property
    def caught(self) -> int:
        """Faults that the gate was red for."""
        return sum(row["caught"] for row in self.faults)

    @property
    def false_alarms(self) -> int:
        """Healthy runs that the gate was red for."""
        return sum(bool(run["alarms"]) for run in self.healthy)

    @property
    def exit_code(self) -> int:
        """0 where every fault that can be seen was caught by a check that should, and healthy runs
        stayed green but for one in ten."""
        quiet = self.false_alarms <= ALARMS * len(self.healthy)
        good = all(row["as_expected"] for row in self.faults)
        return EXIT_PASS if quiet and good else EXIT_FAIL

    def as_json(self) -> dict[str, Any]:
        """The one object of `--json`."""
        return {
            "faults": self.faults,
            "caught": self.caught,
            "total": len(self.faults),
            "false_alarms": self.false_alarms,
            "healthy": self.healthy,
            "machine": self.machine,
            "jobs": self.jobs,
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
    jobs: int | None = None,
    minutes: float | None = None,
    out: Path | None = None,
) -> Proof:
    """Prove the gate on `faults` and `families` (all where nothing is named).

    `quick`: the twelve faults of the quick proof, fewer items. `items`: the most of a trial.
    `healthy`: how many healthy runs. `jobs`: processes at once, by default one for each core up to
    four. `minutes`: what is not done by then is told as not tried. Raises UsageError for what there
    is not.
    """
    begun = time.monotonic()
    chosen = choose(faults, families, quick=quick)
    where = _device(device)
    if healthy is None:
        healthy = 2 if quick else 0 if faults or families else 10
    folder = out or new_folder("prove")
    if (folder / "prove.json").exists():
        raise UsageError("holds a proof already", file=folder)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [Task("fault", fault.id) for fault in chosen]
    tasks += [Task("healthy", str(number)) for number in range(healthy)]
    with tempfile.TemporaryDirectory(prefix="evalsuite-prove-") as scratch:
        arms = QUICK_ARMS if quick else ARMS
        most = items or (QUICK_ITEMS if quick else ITEMS[where])
        setting = Setting(Path(scratch), where, most, model, arms)
        at_once = min(jobs or _jobs(where), max(len(tasks), 1))
        proof = Proof(machine_of(setting), folder, jobs=at_once)
        ends = None if minutes is None else begun + 60 * minutes
        for one in _done(tasks, setting, proof.jobs, ends):
            proof = _with(proof, one, tasks, time.monotonic() - begun)
    return proof


def _done(tasks: Sequence[Task], setting: Setting, jobs: int, ends: float | None) -> Iterator[Done]:
    """Carry out what may share the machine, and then, one by one, what wall time is judged of."""
    alone = [task for task in tasks if _timed(task, setting.device)]
    shared = [task for task in tasks if task not in alone]
    shop = functools.partial(workshop, setting)
    yield from carried_out(shared, shop, processes=jobs, limit=LIMIT, ends=ends)
    yield from carried_out(alone, shop, processes=1, limit=LIMIT, ends=ends)


def _timed(task: Task, device: str) -> bool:
    """On a CPU wall time only warns of a healthy run."""
    if task.kind == "healthy":
        return device != "cpu" and _varied(task).timed
    return "wall" in FAULTS[task.name].checks


def _with(proof: Proof, done: Done, tasks: Sequence[Task], seconds: float) -> Proof:
    """The proof with one more row, written: one that is broken off keeps what it has."""
    from evalsuite.faults.tables import write

    rows = proof.faults if done.task.kind == "fault" else proof.healthy
    row = _row(done)
    rows.append(row)
    places = {_name(task): place for place, task in enumerate(tasks)}
    rows.sort(key=lambda one: places[one.get("id") or one["name"]])
    proof = Proof(proof.machine, proof.folder, proof.faults, proof.healthy, proof.jobs, seconds)
    write(proof.as_json(), proof.folder / "prove")
    click.echo(_told(row), err=True)
    return proof


def _name(task: Task) -> str:
    """The id of a fault, the name of a healthy run."""
    return task.name if task.kind == "fault" else _varied(task).name


def _varied(task: Task) -> Variation:
    return variations(int(task.name) + 1)[-1]


def _row(done: Done) -> Row:
    """The row of a task; one that could not be carried out counts against the gate."""
    if done.row is not None:
        return done.row
    told = done.problem or "no reason is known"
    if done.task.kind == "healthy":
        name = _name(done.task)
        return HealthyRun(name, 0, done.seconds, ("not run",), told).as_json()
    fault = FAULTS[done.task.name]
    return Trial(fault, False, False, (), 0, done.seconds, "", {}, {}, None, problem=told).as_json()


def _told(row: Row) -> str:
    """One row in one line."""
    spent = f"{row['items']} items, {row['seconds']:.0f} s"
    if "id" not in row:
        alarms = f"ALARM {row['says']}" if row["alarms"] else "green"
        return f"healthy, {row['name']}: {alarms} ({spent})"
    word = "caught by " + ", ".join(row["checks"]) if row["caught"] else "not caught"
    if row["problem"]:
        word = f"not tried: {row['problem']}"
    return f"{row['id']} {word} ({spent})"


def _jobs(device: str) -> int:
    """Processes at once where nobody says."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, MOST_JOBS[device])


def _device(name: str | None) -> str:
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda"):
        raise UsageError(f"{name!r} is neither cpu nor cuda", field="device")
    return name
