"""One `evalsuite run`, from the command line's wishes to an executed run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from evalsuite.engines.opening import open_engine
from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask, TaskItem, load_task
from evalsuite.paths import new_folder
from evalsuite.planning import choose_items
from evalsuite.progress import RunProgress
from evalsuite.records import Shard
from evalsuite.runfolder import Mode
from evalsuite.runner import Executed, StopRuleOf, execute
from evalsuite.shards import Part, take_part
from evalsuite.suite import Overrides, Suite

Executor = Literal["local", "ray"]


@dataclass(frozen=True)
class Launch:
    """What the command line asks of a run.

    `part` is the shard of the items to be run, `executor` where the arms run.
    """

    suite: str
    overrides: Overrides
    items: str | None
    out: Path | None
    mode: Mode
    part: Part | None = None
    executor: Executor = "local"


def launch(asked: Launch, suite: Suite, stop_rule_of: StopRuleOf | None = None) -> Executed:
    """Execute a run of `suite` with progress on standard error.

    `stop_rule_of` is asked for the rule that stops arms, once the run is known. Raises UsageError
    for whatever is wrong before the first answer, RunIncomplete where the run is interrupted by
    SIGINT or SIGTERM.
    """
    if asked.mode == "resume" and asked.out is None:
        raise UsageError("--resume needs --out: which run to go on with", field="out")
    folder = asked.out if asked.out is not None else new_folder(suite.name)
    task, items, shard = drawn_items(asked, suite)
    engine = open_engine(suite.engine_config())
    try:
        with _terminable(), RunProgress() as progress:
            return execute(
                suite,
                task,
                items,
                engine,
                folder,
                mode=asked.mode,
                watcher=progress,
                stop_rule_of=stop_rule_of,
                shard=shard,
            )
    finally:
        engine.close()


def drawn_items(
    asked: Launch, suite: Suite
) -> tuple[HarnessTask, tuple[TaskItem, ...], Shard | None]:
    """Return the task, the items to be run, and which shard of a draw they are."""
    task = task_of(suite)
    items = choose_items(task, suite.limit, asked.items)
    if asked.part is None:
        return task, items, None
    return task, *take_part(items, asked.part)


def task_of(suite: Suite) -> HarnessTask:
    """Return a suite's task, asked as the suite asks it."""
    return load_task(
        suite.task,
        shots=suite.shots,
        max_tokens=suite.max_tokens,
        stops=suite.stops,
        chat=suite.chat,
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a run as SIGINT does, so that it can be resumed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
