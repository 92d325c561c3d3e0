"""Tasks in processes of their own: several at once, each held to a limit, none ending the rest.

A fault can do anything to the process that carries it: use it up, end it, leave a GPU unusable.
The others go on in a fresh one.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

Row = dict[str, Any]
# Seconds that a process may take to end by itself.
PATIENCE = 30.0


class Task(NamedTuple):
    """What to do: `kind` and `name` mean something to whoever does it."""

    kind: str
    name: str


class Done(NamedTuple):
    """A task with its row, or with the reason why there is none, and its seconds."""

    task: Task
    row: Row | None
    problem: str | None
    seconds: float


# Given a worker's number: what does its tasks. A function of a module, since it is named to another
# process.
Workshop = Callable[[int], AbstractContextManager[Callable[[Task], Row]]]


class _Worker:
    """One process, and the task that it has."""

    def __init__(self, workshop: Workshop, number: int, limit: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.task: Task | None = None
        self._idle = True
        self._begun = 0.0
        self._limit = limit
        self._process = context.Process(
            target=_work, args=(theirs, workshop, number, limit), daemon=True
        )
        self._process.start()
        theirs.close()

    def give(self, task: Task) -> None:
        self.task, self._idle, self._begun = task, False, time.monotonic()
        self.connection.send(task)

    def take(self) -> Done:
        """The result of its task, or what became of the process."""
        try:
            row = self.connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return self.done(None, self._end())
        self._idle = True
        return self.done(row, None)

    def done(self, row: Row | None, problem: str | None) -> Done:
        """Its task with what became of it, and no task any more."""
        if self.task is None:
            raise RuntimeError("a worker without a task was asked for its result")
        task, self.task = self.task, None
        return Done(task, row, problem, time.monotonic() - self._begun)

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def stop(self) -> None:
        """Let it end by itself, and end it where it is busy."""
        self.connection.close()
        if not self._idle:
            self._process.terminate()
        self._process.join(PATIENCE)
        if self.alive:
            self._process.kill()
            self._process.join()

    def _end(self) -> str:
        code = self._process.exitcode or 0
        if code == -signal.SIGXCPU:
            return f"took more than {self._limit} s of processor time"
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit code {code}"


def carried_out(
    tasks: Sequence[Task],
    workshop: Workshop,
    *,
    processes: int,
    limit: int,
    ends: float | None = None,
) -> Iterator[Done]:
    """Carry out `tasks` in so many `processes` and yield each as it is done.

    The last process, where there are several, takes tasks from the end, so that like tasks stay
    together. `limit` is in seconds of processor time for each task; at `ends` (of time.monotonic)
    everything is ended. Whatever happens, every task is yielded once.
    """
    left = deque(tasks)
    workers: dict[int, _Worker] = {}
    try:
        while left or any(worker.task for worker in workers.values()):
            for number in range(processes):
                if left and (number not in workers or not workers[number].alive):
                    workers[number] = _Worker(workshop, number, limit)
                if left and workers[number].task is None:
                    last = number > 0 and number == processes - 1
                    workers[number].give(left.pop() if last else left.popleft())
            ready = _ready(workers, ends)
            if not ready:
                yield from _given_up(workers, left)
                return
            for worker in ready:
                yield worker.take()
    finally:
        for worker in workers.values():
            worker.stop()


def _ready(workers: dict[int, _Worker], ends: float | None) -> list[_Worker]:
    """The workers that have something to tell; none where the time is up."""
    busy = {worker.connection: worker for worker in workers.values() if worker.task}
    timeout = None if ends is None else max(0.0, ends - time.monotonic())
    return [busy[one] for one in wait(list(busy), timeout) if isinstance(one, Connection)]


def _given_up(workers: dict[int, _Worker], left: Sequence[Task]) -> Iterator[Done]:
    told = "the time was up"
    for worker in workers.values():
        if worker.task:
            yield worker.done(None, told)
    for task in left:
        yield Done(task, None, told, 0.0)


def _work(connection: Connection, workshop: Workshop, number: int, limit: int) -> None:
    """Do tasks until the other side is gone."""
    # An interruption from the keyboard reaches every process; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with workshop(number) as do:
        for task in _received(connection):
            used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (int(used) + limit, hard))
            connection.send(do(task))


def _received(connection: Connection) -> Iterator[Task]:
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        yield task
