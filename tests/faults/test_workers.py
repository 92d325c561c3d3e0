"""Tasks in processes: all are told once, and what one does to its process harms no other."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from evalsuite.faults.workers import Done, Row, Task, carried_out


@contextmanager
def shop(folder: Path, number: int) -> Iterator[Callable[[Task], Row]]:
    """What the processes of these tests do; each leaves its id."""
    (folder / f"{number}-{os.getpid()}").touch()
    yield functools.partial(work, number)


def work(number: int, task: Task) -> Row:
    if task.kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif task.kind == "raises":
        raise ValueError("a mistake in a trial")
    elif task.kind == "busy":
        while True:
            pass
    elif task.kind == "hangs":
        time.sleep(600)
    return {"name": task.name, "by": number}


def done(
    folder: Path, *kinds: str, processes: int = 2, limit: int = 100, ends: float | None = None
) -> list[Done]:
    tasks = [Task(kind, str(number)) for number, kind in enumerate(kinds)]
    shop_here = functools.partial(shop, folder)
    found = list(carried_out(tasks, shop_here, processes=processes, limit=limit, ends=ends))
    assert sorted(one.task for one in found) == sorted(tasks)
    return found


def gone(folder: Path) -> bool:
    """Whether no process of a test is left."""
    pids = [int(path.name.partition("-")[2]) for path in folder.iterdir()]
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def problems(found: Sequence[Done]) -> dict[str, str]:
    return {one.task.kind: one.problem for one in found if one.problem is not None}


def test_two_processes_share_the_tasks(tmp_path: Path) -> None:
    found = done(tmp_path, *["fine"] * 6)
    assert [one.problem for one in found] == [None] * 6
    assert {one.row["name"] for one in found if one.row} == set("012345")
    by = {one.row["name"]: one.row["by"] for one in found if one.row}
    assert by["0"] == 0 and by["5"] == 1
    assert len(list(tmp_path.iterdir())) == 2 and gone(tmp_path)


@pytest.mark.parametrize(
    ("kind", "told"),
    [("killed", "SIGKILL"), ("raises", "exit code 1"), ("busy", "more than 1 s of processor time")],
)
def test_a_task_that_ends_its_process_is_told_and_the_others_go_on(
    tmp_path: Path, kind: str, told: str
) -> None:
    found = done(tmp_path, "fine", kind, "fine", processes=1, limit=1)
    assert list(problems(found)) == [kind] and told in problems(found)[kind]
    assert sum(one.row is not None for one in found) == 2
    assert gone(tmp_path)


def test_what_is_not_done_in_time_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(process: object) -> None:
        raise AssertionError("it was waited for and not ended")

    monkeypatch.setattr(SpawnProcess, "kill", killed)
    found = done(tmp_path, "hangs", "fine", processes=1, ends=time.monotonic() + 2)
    assert problems(found) == {"hangs": "the time was up", "fine": "the time was up"}
    assert gone(tmp_path)


def test_processes_end_with_whoever_asked(tmp_path: Path) -> None:
    shop_here = functools.partial(shop, tmp_path)
    left = carried_out([Task("fine", "0"), Task("hangs", "1")], shop_here, processes=1, limit=9)
    assert next(left).row is not None
    left.close()
    assert gone(tmp_path)
