"""Claiming a run folder: new, to be resumed, or afresh."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from evalsuite.errors import UsageError
from evalsuite.recordlog import LOCK_NAME, RunLock
from evalsuite.records import Item, Run
from evalsuite.storage import TEMPORARY, read_run, write_lines, write_struct

Mode = Literal["new", "resume", "fresh"]
VERDICT_FILES = ("verdict.json", "report.html", "report.md", "junit.xml")
OWN_FILES = ("run.json", "items.jsonl", *VERDICT_FILES)


@contextlib.contextmanager
def writing(folder: Path, mode: Mode) -> Iterator[None]:
    """Hold the folder's lock; leave no folder behind where nothing was written.

    Raises UsageError where another process holds it, or where there is no folder to resume.
    """
    if mode == "resume" and not folder.is_dir():
        raise UsageError("no such run to resume", file=folder)
    with RunLock(folder):
        try:
            yield
        finally:
            if [path.name for path in folder.iterdir()] == [LOCK_NAME]:
                shutil.rmtree(folder)


def admit(folder: Path, run: Run, mode: Mode) -> None:
    """Raise UsageError where `run` must not be written to `folder`; writes nothing."""
    exists = (folder / "run.json").exists()
    foreign = sorted(path.name for path in folder.iterdir() if not _may_be_left(path))
    if not exists and foreign:
        raise UsageError(f"is no run, but holds {', '.join(foreign[:3])}", file=folder)
    if exists and mode == "new":
        raise UsageError("holds a run already; add --resume or --fresh", file=folder)
    if exists and mode == "resume":
        differences = run.differences(read_run(folder))
        if differences:
            listed = "\n  ".join(differences)
            raise UsageError(f"was begun otherwise and cannot be resumed:\n  {listed}", file=folder)


def prepare(folder: Path, run: Run, items: Sequence[Item], mode: Mode) -> None:
    """Write items.jsonl and run.json, the latter last; a resumed run only loses its verdict."""
    for path in folder.rglob(f".*{TEMPORARY}"):
        path.unlink()
    exists = (folder / "run.json").exists()
    if exists and mode == "resume":
        for name in VERDICT_FILES:
            (folder / name).unlink(missing_ok=True)
        return
    if exists:
        _clear(folder)
    write_lines(folder / "items.jsonl", list(items))
    write_struct(folder / "run.json", run)


def _may_be_left(path: Path) -> bool:
    """Whether a run that was killed before its run.json was there may have left `path`."""
    return path.name in (LOCK_NAME, "items.jsonl") or path.name.endswith(TEMPORARY)


def _clear(folder: Path) -> None:
    arms = {arm.name for arm in read_run(folder).plan.arms}
    (folder / "run.json").unlink()
    for path in folder.iterdir():
        if path.name in arms and path.is_dir():
            shutil.rmtree(path)
        elif path.name in OWN_FILES:
            path.unlink()
