"""One job: one arm over all items of a run in one repeat, into a folder that travels as bytes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from evalsuite.engines.opening import open_engine
from evalsuite.errors import EvalsuiteError, RunIncomplete, UsageError
from evalsuite.launch import task_of
from evalsuite.recordlog import LOCK_NAME
from evalsuite.records import Record, Run, Shard
from evalsuite.runner import execute
from evalsuite.suite import Suite


@dataclass(frozen=True)
class Job:
    """What a worker needs to know: nothing in it is a path of the machine that gave it.

    `suite` is the resolved suite as JSON with the one arm and one repeat; `stopping` the baseline
    by which a collapsed arm is stopped, `auto` or None.
    """

    arm: str
    repeat: int
    suite: bytes
    items: tuple[str, ...]
    shard: Shard | None
    stopping: str | None

    @property
    def name(self) -> str:
        """The job's name, which is also that of its folder."""
        return f"{self.arm}-{self.repeat}"


@dataclass(frozen=True)
class Done:
    """What came of a job: the run folder's files by relative path, or why it was refused.

    `stopped` and `failed` are the reasons where the arm was stopped early or failed; `refused` is
    an error with its exit code, for the user to put right.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    stopped: str | None = None
    failed: str | None = None
    notes: tuple[str, ...] = ()
    refused: tuple[int, str] | None = None

    def raise_refusal(self) -> None:
        """Raise what the worker's error stands for, where there was one."""
        if self.refused is not None:
            code, message = self.refused
            raise (UsageError if code == UsageError.exit_code else RunIncomplete)(message)


def jobs_of(
    suite: Suite, items: Sequence[str], shard: Shard | None, stopping: str | None
) -> list[Job]:
    """Return a job for every arm and repeat."""
    found = []
    for arm in suite.parsed_arms():
        one = msgspec.json.encode(msgspec.structs.replace(suite, arms=(arm.name,), repeats=1))
        found += [
            Job(arm.name, repeat, one, tuple(items), shard, stopping)
            for repeat in range(suite.repeats)
        ]
    return found


def carry_out(job: Job) -> Done:
    """Run one job on this machine. An error of ours comes back as `refused`."""
    try:
        return _carry_out(job)
    except EvalsuiteError as problem:
        return Done(refused=(problem.exit_code, f"{job.arm}: {problem}"))


def _carry_out(job: Job) -> Done:
    from evalsuite.abort import stop_rule

    suite = msgspec.json.decode(job.suite, type=Suite)
    task = task_of(suite)
    by_id = {entry.item.item_id: entry for entry in task.items}
    unknown = [item for item in job.items if item not in by_id]
    if unknown:
        raise UsageError(f"task {task.name} has no item {unknown[0]!r} here", field="items")
    watcher = _Notes()
    rule = None if job.stopping is None else partial(stop_rule, baseline=job.stopping)
    with tempfile.TemporaryDirectory(prefix="evalsuite-") as place:
        folder = Path(place) / "run"
        engine = open_engine(suite.engine_config())
        try:
            executed = execute(
                suite,
                task,
                [by_id[item] for item in job.items],
                engine,
                folder,
                mode="new",
                watcher=watcher,
                stop_rule_of=rule,
                shard=job.shard,
            )
        finally:
            engine.close()
        return Done(
            files_in(folder),
            executed.stopped.get(job.arm),
            executed.failed.get(job.arm),
            tuple(watcher.notes),
        )


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the files of a run folder by relative path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != LOCK_NAME
    }


class _Notes:
    """A watcher that keeps what the user should see."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def warming(self, arm: str) -> None:
        """Nothing to tell."""

    def begin(self, run: Run, done: dict[str, int]) -> None:
        """Nothing to tell."""

    def answered(self, arm: str) -> None:
        """Nothing to tell."""

    def recorded(self, record: Record) -> None:
        """Nothing to tell."""

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)
