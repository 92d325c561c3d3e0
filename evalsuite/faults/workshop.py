"""What a process of a proof does its tasks with: trials of faults, and healthy runs."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalsuite.errors import EvalsuiteError
from evalsuite.faults.bench import Bench
from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.healthy import HealthyRun, run_healthy, variations
from evalsuite.faults.trial import try_fault
from evalsuite.faults.workers import Row, Task

# Two blocks of every arm at least, for ratios of wall time.
HEALTHY_ITEMS = 128


@dataclass(frozen=True)
class Setting:
    """What every process of a proof works on; `folder` holds their run folders."""

    folder: Path
    device: str
    items: int
    model: str | None
    arms: tuple[str, ...]


@contextmanager
def workshop(setting: Setting, number: int) -> Iterator[Callable[[Task], Row]]:
    """What one process does its tasks with."""
    folder = setting.folder / f"process-{number}"
    folder.mkdir(exist_ok=True)
    bench = Bench(folder, setting.device, setting.items, setting.model)
    try:
        yield functools.partial(_do, bench, setting)
    finally:
        bench.close()


def _do(bench: Bench, setting: Setting, task: Task) -> Row:
    if task.kind == "fault":
        return try_fault(bench, FAULTS[task.name], bench.folder / task.name).as_json()
    varied = variations(int(task.name) + 1)[-1]
    items = min(setting.items, HEALTHY_ITEMS)
    begun = time.monotonic()
    try:
        run = run_healthy(bench, varied, items, setting.arms, bench.folder / varied.name)
    except EvalsuiteError as problem:
        told = f"{type(problem).__name__}: {problem}"
        run = HealthyRun(varied.name, 0, time.monotonic() - begun, ("not run",), told)
    return run.as_json()


def machine_of(setting: Setting) -> dict[str, Any]:
    """What the proof is made on; raises for what no process could work with."""
    bench = Bench(setting.folder, setting.device, setting.items, setting.model)
    try:
        return bench.machine()
    finally:
        bench.close()
