"""Runs the arms of a plan over its items into a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from evalsuite.arms import Arm
from evalsuite.engines.base import Answer, ArmSession, Engine, KeepsLogs, Request
from evalsuite.errors import RunIncomplete
from evalsuite.harness import HarnessTask, TaskItem
from evalsuite.planning import Turn, block_count, describe_run, turns
from evalsuite.recorder import ArmRecorder
from evalsuite.records import Record, Run, Shard
from evalsuite.runfolder import Mode, admit, prepare, writing
from evalsuite.sessions import ArmSessions
from evalsuite.suite import Suite

# Given an arm's name and its answers to the first items of the plan, in plan order: why to stop it.
StopRule = Callable[[str, Sequence[Record]], str | None]


class StopRuleOf(Protocol):
    """Makes the stop rule of a run."""

    def __call__(self, run: Run, *, note: Callable[[str], None]) -> StopRule | None:
        """Return the rule, None for none; `note` tells the user something beside it."""


class Watcher(Protocol):
    """Whoever is told how a run goes on."""

    def warming(self, arm: str) -> None:
        """Say that an arm is being started and warmed up."""

    def begin(self, run: Run, done: dict[str, int]) -> None:
        """Say what will be run, and how many answers each arm has already."""

    def answered(self, arm: str) -> None:
        """Say that an answer came."""

    def recorded(self, record: Record) -> None:
        """Say that an answer was scored and saved."""

    def note(self, text: str) -> None:
        """Say something that the user should see."""


@dataclass(frozen=True)
class Executed:
    """What became of a run: arms stopped early and arms that failed, with their reasons."""

    folder: Path
    run: Run
    stopped: dict[str, str]
    failed: dict[str, str]


def execute(
    suite: Suite,
    task: HarnessTask,
    items: Sequence[TaskItem],
    engine: Engine,
    folder: Path,
    *,
    mode: Mode,
    watcher: Watcher,
    stop_rule_of: StopRuleOf | None = None,
    shard: Shard | None = None,
) -> Executed:
    """Run `suite` into `folder`.

    `mode`: `new` refuses a folder that holds a run, `resume` goes on with one under the same
    description, `fresh` replaces it. An arm that fails is left behind and the others go on; its
    reason is in the result and its traceback in its `engine.log`. Raises UsageError before anything
    is written where the run cannot be started, RunIncomplete where it is interrupted.
    """
    engine.check([_request(entry, task, 0) for entry in items])
    run = describe_run(suite, task, items, engine.describe(), shard)
    with writing(folder, mode):
        admit(folder, run, mode)
        if isinstance(engine, KeepsLogs):
            engine.keep_logs(folder)
        stop_rule = None if stop_rule_of is None else stop_rule_of(run, note=watcher.note)
        sessions = ArmSessions(engine, watcher.warming, watcher.note)
        execution = _Execution(run, task, items, sessions, folder, watcher, stop_rule)
        try:
            if engine.interleaves:
                execution.open_all(mode)
            prepare(folder, run, [entry.item for entry in items], mode)
            execution.take_turns(engine.interleaves)
        except KeyboardInterrupt:
            raise RunIncomplete("interrupted; --resume goes on with it", file=folder) from None
        finally:
            execution.close()
        return Executed(folder, run, execution.stopped, sessions.failed)


def _request(entry: TaskItem, task: HarnessTask, repeat: int) -> Request:
    generation = task.generation
    return Request(
        f"{entry.item.item_id}/{repeat}",
        entry.prompt,
        generation.max_tokens,
        generation.stops,
        messages=entry.messages,
    )


class _Execution:
    """The moving parts of one run."""

    def __init__(
        self,
        run: Run,
        task: HarnessTask,
        items: Sequence[TaskItem],
        sessions: ArmSessions,
        folder: Path,
        watcher: Watcher,
        stop_rule: StopRule | None,
    ) -> None:
        self.stopped: dict[str, str] = {}
        self._run = run
        self._task = task
        self._entries = {entry.item.item_id: entry for entry in items}
        self._sessions = sessions
        self._folder = folder
        self._watcher = watcher
        self._stop_rule = stop_rule
        self._recorders: dict[str, ArmRecorder] = {}
        self._blocks = block_count(run.plan)

    def open_all(self, mode: Mode) -> None:
        """Start and warm up every arm that has something left to answer."""
        for arm in self._run.plan.arms:
            if not (mode == "resume" and ArmRecorder.has_finished(self._folder, arm.name)):
                self._sessions.get(arm)

    def take_turns(self, interleaved: bool) -> None:
        """Take all turns, and write the evidence of each arm that comes to its end."""
        plan = self._run.plan
        items = {key: entry.item for key, entry in self._entries.items()}
        for arm in plan.arms:
            self._recorders[arm.name] = ArmRecorder(
                self._folder, arm.name, self._task, items, self._watcher.recorded
            )
        done = {name: len(recorder.records) for name, recorder in self._recorders.items()}
        self._watcher.begin(self._run, done)
        for turn in turns(plan, interleaved):
            self._take_turn(turn)
            if not interleaved and turn.block == self._blocks - 1:
                self._end(turn.arm)
        if interleaved:
            for arm in plan.arms:
                self._end(arm)

    def close(self) -> None:
        """Close sessions and files, whatever happened."""
        self._sessions.close()
        for recorder in self._recorders.values():
            recorder.close()
        if self._recorders:
            self._sessions.write_logs(self._folder)

    def _take_turn(self, turn: Turn) -> None:
        name = turn.arm.name
        recorder = self._recorders[name]
        asked = [item for item in turn.items if (item, turn.repeat) not in recorder.records]
        if not asked or name in self.stopped or recorder.finished:
            return
        session = self._sessions.get(turn.arm)
        if session is None:
            return
        recorder.attach(session)
        with self._sessions.failing(name):
            self._ask(session, recorder, turn, asked)
        if name not in self._sessions.failed:
            self._consider_stop(turn)

    def _ask(
        self, session: ArmSession, recorder: ArmRecorder, turn: Turn, asked: list[str]
    ) -> None:
        block = self._block(turn, recorder, split=len(asked) < len(turn.items))
        requests = [_request(self._entries[item], self._task, turn.repeat) for item in asked]
        keys = {
            request.request_id: (item, turn.repeat)
            for request, item in zip(requests, asked, strict=True)
        }

        def take(answer: Answer) -> None:
            self._watcher.answered(recorder.arm)
            recorder.take(answer, keys[answer.request_id], block)

        try:
            session.generate(requests, take)
        finally:
            recorder.flush()
        missing = [key for key in keys.values() if key not in recorder.records]
        if missing:
            self._sessions.fail(recorder.arm, f"{len(missing)} requests were left unanswered")

    def _block(self, turn: Turn, recorder: ArmRecorder, split: bool) -> int:
        """Return the block's number; what an interruption left of one is numbered anew."""
        if not split:
            return turn.block
        used = max(record.block for record in recorder.records.values())
        return turn.block + self._blocks * (1 + used // self._blocks)

    def _consider_stop(self, turn: Turn) -> None:
        if self._stop_rule is None or turn.repeat > 0:
            return
        name = turn.arm.name
        records = self._recorders[name].records
        ordered = [records[item, 0] for item in self._run.plan.items if (item, 0) in records]
        reason = self._stop_rule(name, ordered)
        if reason is not None:
            self.stopped[name] = reason
            self._watcher.note(f"{name} stopped after {len(ordered)} items: {reason}")

    def _end(self, arm: Arm) -> None:
        recorder = self._recorders[arm.name]
        if not recorder.finished:
            session = self._sessions.get(arm)
            if session is not None:
                recorder.attach(session)
                with self._sessions.failing(arm.name):
                    recorder.finish()
        self._sessions.end(arm.name)
