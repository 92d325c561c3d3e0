"""Appending to a run: torn lines, full disks, two writers."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
from test_records import a_record

from evalsuite.errors import DamagedRun, RunIncomplete, UsageError
from evalsuite.recordlog import RecordLog, RunLock, recover_records
from evalsuite.storage import disk_error, encode, write_atomic


def records(count: int) -> list[Any]:
    """Return records that differ in their item."""
    return [a_record(item_id=f"item{index}") for index in range(count)]


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "eager" / "records.jsonl"
    with RecordLog(path) as log:
        for record in records(5):
            log.append(record)
        log.write()
        assert log.saved == 0
        log.sync()
        assert log.saved == 5
    with RecordLog(path) as log:
        log.append(a_record(item_id="later"))
    assert recover_records(path) == [*records(5), a_record(item_id="later")]


def test_a_file_cut_at_any_byte_gives_back_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [encode(record) + b"\n" for record in records(3)]
    whole = b"".join(lines)
    ends = [sum(len(line) for line in lines[:count]) for count in range(4)]
    for cut in sorted({*range(0, len(whole), 7), *ends, *(end - 1 for end in ends[1:])}):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends[1:])
        assert recover_records(path) == records(3)[:kept]
        assert path.stat().st_size == ends[kept]
        assert recover_records(path) == records(3)[:kept]


def test_damage_before_the_last_line_is_not_mended(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    lines = [encode(record) for record in records(3)]
    path.write_bytes(b"\n".join([lines[0], lines[1][:20], lines[2]]) + b"\n")
    with pytest.raises(DamagedRun, match=r"records\.jsonl:2"):
        recover_records(path)


def test_a_missing_file_has_no_records(tmp_path: Path) -> None:
    assert recover_records(tmp_path / "records.jsonl") == []


def test_half_a_line_left_by_an_interruption_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import evalsuite.recordlog as module

    path = tmp_path / "records.jsonl"
    log = RecordLog(path)
    log.append(a_record(item_id="first"))
    log.sync()
    log.append(a_record(item_id="second"))

    def interrupted(file: Any, data: bytes) -> None:
        file.write(data[:30])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "_write_all", interrupted)
        log.write()
    log.close()
    assert [record.item_id for record in recover_records(path)] == ["first", "second"]


def test_a_full_disk_is_told_and_leaves_whole_lines(tmp_path: Path) -> None:
    """In a child whose files may not grow beyond 2,500 bytes."""
    path = tmp_path / "records.jsonl"
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
        log = RecordLog(path)
        code = 9
        try:
            for record in records(40):
                log.append(record)
                log.sync()
        except RunIncomplete as problem:
            code = log.saved if str(path) in str(problem) else 8
        os._exit(code)
    _, status = os.waitpid(child, 0)
    saved = os.waitstatus_to_exitcode(status)
    assert 0 < saved < 8
    assert path.read_bytes().endswith(b"\n")
    assert recover_records(path) == records(40)[:saved]


def test_no_space_is_named_as_that(tmp_path: Path) -> None:
    told = str(disk_error(OSError(errno.ENOSPC, "No space left"), tmp_path / "x"))
    assert "no space left" in told
    assert "--resume" in told


def test_a_file_written_atomically_is_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    write_atomic(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunIncomplete, match="no space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_the_second_writer_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with RunLock(tmp_path), pytest.raises(UsageError, match="another process is writing"):
        RunLock(tmp_path)
    RunLock(tmp_path).release()


def test_the_lock_of_a_killed_writer_is_free(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        lock = RunLock(tmp_path)
        os.kill(os.getpid(), signal.SIGKILL)
        lock.release()
    os.waitpid(child, 0)
    RunLock(tmp_path).release()
