"""Appending to a run folder: records as they arrive, one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from evalsuite.errors import UsageError
from evalsuite.records import Record
from evalsuite.storage import disk_error, encode, parse_lines

LOCK_NAME = ".lock"
# A program that a killed writer was just starting holds the lock until it runs.
LOCK_PATIENCE_S = 0.5


def recover_records(path: Path) -> list[Record]:
    """Return the whole records of an interrupted file and cut a torn last line off it.

    A line is torn when it has no newline; damage anywhere else raises DamagedRun.
    """
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    records = list(parse_lines(data[:whole], Record, path)) if whole else []
    if whole != len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return records


class RecordLog:
    """Append-only writer of `records.jsonl`; `saved` counts the records known to be on disk.

    `append` only collects; `write` hands over to the system, which survives a kill of this process;
    `sync` waits for the disk, which survives a loss of power.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.saved = 0
        self._pending: list[bytes] = []
        self._written = 0
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._end = os.fstat(self._file.fileno()).st_size

    def append(self, record: Record) -> None:
        """Take one record. Raises ValueError where it holds NaN or an infinity."""
        self._pending.append(encode(record) + b"\n")

    def write(self) -> None:
        """Write what was taken. Raises RunIncomplete where the disk refuses; the file stays whole.

        May be called again after any interruption, which can have left half a line behind.
        """
        data = b"".join(self._pending)
        try:
            if os.fstat(self._file.fileno()).st_size != self._end:
                self._file.truncate(self._end)
            _write_all(self._file, data)
        except OSError as problem:
            self._file.truncate(self._end)
            raise disk_error(problem, self.path) from None
        end, written = self._end + len(data), self._written + len(self._pending)
        # One statement: an interruption must not fall between the bookkeeping's parts.
        self._end, self._written, self._pending = end, written, []

    def sync(self) -> None:
        """Write, and wait for the disk. Raises RunIncomplete where the disk refuses."""
        self.write()
        if self.saved == self._written:
            return
        try:
            os.fsync(self._file.fileno())
        except OSError as problem:
            raise disk_error(problem, self.path) from None
        self.saved = self._written

    def close(self) -> None:
        """Sync and close."""
        try:
            self.sync()
        finally:
            self._file.close()

    def __enter__(self) -> RecordLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class RunLock:
    """Exclusive right to write to a run folder; the system drops it when the process ends."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / LOCK_NAME).open("a")
        deadline = time.monotonic() + LOCK_PATIENCE_S
        while not self._acquired():
            if time.monotonic() >= deadline:
                self._file.close()
                raise UsageError("another process is writing to this run", file=folder)
            time.sleep(0.02)

    def _acquired(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            if problem.errno not in (errno.EAGAIN, errno.EACCES):
                self._file.close()
                raise
            return False
        return True

    def release(self) -> None:
        """Give the folder up."""
        self._file.close()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _write_all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        written = file.write(view)
        view = view[written:]
