"""What every trial runs on: the task's items, engines, and healthy runs to hold faults against."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from evalsuite.baseline_choice import Chosen
from evalsuite.checks import Finding
from evalsuite.engines.base import Engine, Request
from evalsuite.engines.mini import open_engine
from evalsuite.errors import RunIncomplete
from evalsuite.faults.remembering import RememberingEngine
from evalsuite.faults.stress import NONE, Stress
from evalsuite.harness import HarnessTask, TaskItem, load_task
from evalsuite.judge import verdict_on
from evalsuite.planning import choose_items
from evalsuite.policy import Policy, policy_from
from evalsuite.records import Record, Run
from evalsuite.reference import Reference, from_run
from evalsuite.runload import load_run
from evalsuite.runner import execute
from evalsuite.runview import Int8, RunView
from evalsuite.suite import DEFAULT_SUITE, Suite, load_suite
from evalsuite.verdict import Verdict

# A step of few requests takes a GPU as long as one of many.
BATCH = {"cpu": 16, "cuda": 64}
STAGES = {"cpu": (16, 32, 64, 128), "cuda": (64, 128, 256, 512)}
# Set where CUDA's Multi-Process Service lets several processes use a GPU at once.
MPS = "CUDA_MPS_PIPE_DIRECTORY"


class Unseen:
    """A watcher that keeps its peace; a trial tells of itself when it is over."""

    def warming(self, arm: str) -> None:
        """Nothing."""

    def begin(self, run: Run, done: dict[str, int]) -> None:
        """Nothing."""

    def answered(self, arm: str) -> None:
        """Nothing."""

    def recorded(self, record: Record) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""


@dataclass
class Bench:
    """`model` is a folder (None: the embedded checkpoint), `most` the most items of a trial;
    run folders lie in `folder`."""

    folder: Path
    device: str
    most: int
    model: str | None = None
    suite: Suite = field(init=False)
    task: HarnessTask = field(init=False)
    items: tuple[TaskItem, ...] = field(init=False)
    policy: Policy = field(init=False)
    _engines: dict[str, Engine] = field(init=False, default_factory=dict)
    _healthy: dict[str, Healthy] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.suite = load_suite(DEFAULT_SUITE)
        self.task = load_task(self.suite.task, shots=self.suite.shots, max_tokens=None)
        self.items = choose_items(self.task, self.most, None)
        self.policy = policy_from(self.suite.policy)

    @property
    def stages(self) -> tuple[int, ...]:
        """Numbers of items after which a trial is judged."""
        return (*(n for n in STAGES[self.device] if n < self.most), self.most)

    @property
    def batch(self) -> int:
        """Requests at once, and items of one arm's turn."""
        return min(BATCH[self.device], self.stages[0])

    def options(self, stress: Stress) -> dict[str, Any]:
        """Engine options under `stress`."""
        scarce = {} if stress.blocks is None else {"num_blocks": round(stress.blocks * self.batch)}
        return {"graph_batches": [self.batch], **scarce, **dict(stress.options)}

    def engine(self, options: dict[str, Any], batch: int) -> Engine:
        """An engine with these options, opened once."""
        key = f"{sorted(options.items())} {batch}"
        if key not in self._engines:
            self._engines[key] = open_engine(
                model=self.model,
                dtype=None,
                device=self.device,
                concurrency=batch,
                options=options,
            )
        return self._engines[key]

    def requests(self) -> list[Request]:
        """Every request that a trial may ask."""
        made = self.task.generation
        return [
            Request(f"{entry.item.item_id}/0", entry.prompt, made.max_tokens, made.stops)
            for entry in self.items
        ]

    def remembering(self, stress: Stress = NONE) -> RememberingEngine:
        """A fresh set of sessions on the engine for `stress`."""
        return RememberingEngine(self.engine(self.options(stress), self.batch), self.requests())

    def machine(self) -> dict[str, Any]:
        """What the trials run on."""
        told = self.remembering().describe()
        return {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "hardware": dict(told.hardware),
            "software": dict(told.software),
            "dtype": told.dtype,
            "model_hash": told.model_hash,
            "items": self.most,
            "batch": self.batch,
            "mps": self.device == "cuda" and MPS in os.environ,
        }

    def execute(
        self, engine: Any, arms: Sequence[str], items: Sequence[TaskItem], folder: Path
    ) -> None:
        """Run `arms` over `items` into `folder`, in place of what is there."""
        suite = msgspec.structs.replace(
            self.suite,
            arms=tuple(arms),
            limit=len(items),
            block_size=self.batch,
            engine=msgspec.structs.replace(self.suite.engine, device=self.device),
        )
        mode = "fresh" if (folder / "run.json").exists() else "new"
        execute(suite, self.task, items, engine, folder, mode=mode, watcher=Unseen())  # type: ignore[arg-type]

    def healthy(self, stress: Stress) -> Healthy:
        """The healthy run under `stress`, which grows as it is needed."""
        key = str(stress)
        if key not in self._healthy:
            name = f"healthy-{len(self._healthy)}"
            self._healthy[key] = Healthy(self, stress, self.folder / name)
        return self._healthy[key]

    def close(self) -> None:
        """Close all sessions and engines."""
        for healthy in self._healthy.values():
            healthy.engine.close()
        for engine in self._engines.values():
            engine.close()


class Healthy:
    """A run of the engine as it is, over as many arms and items as were asked for so far."""

    def __init__(self, bench: Bench, stress: Stress, folder: Path) -> None:
        self._bench, self._stress, self._folder = bench, stress, folder
        self.engine = bench.remembering(stress)
        self._arms: list[str] = []
        self._count = 0
        self._view: RunView | None = None

    def view(self, arms: Sequence[str], count: int) -> RunView:
        """The run over at least these arms and the first `count` items.

        Raises RunIncomplete where it does not hold by itself: nothing can be proved on it.
        """
        missing = [arm for arm in arms if arm not in self._arms]
        if self._view is None or missing or count > self._count:
            self._arms += missing
            self._count = max(count, self._count)
            bench = self._bench
            with self._stress.active():
                bench.execute(self.engine, self._arms, bench.items[: self._count], self._folder)
            self._view = load_run(self._folder)
            self._require(self._view)
        return self._view

    def _require(self, view: RunView) -> None:
        verdict = verdict_on(view, Chosen(asked_none=True), self._bench.policy)
        reasons = reasons_of(verdict, timed=False)
        if reasons:
            told = reasons[0]
            raise RunIncomplete(
                f"the healthy run does not hold, so that nothing can be proved on it: "
                f"{told.check}: {told.message}",
                file=self._folder,
            )

    def reference(self, arms: Sequence[str], ids: Sequence[str]) -> Reference:
        """What a run of `arms` over `ids` is held against.

        The accuracy that collapse is told by is known from few items only. Laplace's rule of
        succession keeps it below 1, at which a single wrong answer would be impossible.
        """
        view = self.view(arms, len(ids))
        found = from_run(view, ids, self._bench.policy.equality)
        known = {
            name: replace(arm, accuracy=_succession(view.arms[name].correct))
            for name, arm in found.arms.items()
        }
        return replace(found, arms=known)


def _succession(correct: Int8) -> float:
    """(right + 1) / (answers + 2)."""
    return (int(correct.sum()) + 1) / (correct.size + 2)


def reasons_of(verdict: Verdict, *, timed: bool) -> list[Finding]:
    """What the verdict rests on; less wall time unless `timed`, as other trials may share the
    machine, and blocks of a trial last tenths of a second."""
    return [finding for finding in verdict.reasons() if timed or finding.check != "wall"]


def judged(bench: Bench, folder: Path, reference: Reference) -> tuple[RunView, Verdict]:
    """The run at `folder` and its verdict."""
    view = load_run(folder)
    return view, verdict_on(view, Chosen(reference=reference), bench.policy)
