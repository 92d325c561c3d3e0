"""Reading and writing the files of a run folder: strict, atomic, safe against a kill."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from evalsuite.errors import DamagedRun, EvalsuiteError, RunIncomplete, UsageError
from evalsuite.records import Evidence, Item, Record, Run

T = TypeVar("T")

TEMPORARY = ".tmp"

_FIELD = re.compile(r"(?:field `([^`]+)`)|(?:at `\$\.?([^`]*)`)")


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON without its newline.

    Raises ValueError naming the field where a number is NaN or infinite: JSON has no such
    numbers and msgspec would write null.
    """
    _require_finite(msgspec.to_builtins(value), "")
    return msgspec.json.encode(value)


def decode(
    data: bytes,
    kind: type[T],
    file: Path,
    line: int | None = None,
    error: type[EvalsuiteError] = DamagedRun,
) -> T:
    """Return `data` as a `kind`. Raises `error` naming file, line and field."""
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except msgspec.ValidationError as problem:
        raise error(str(problem), file=file, line=line, field=_field(str(problem))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise error(f"not JSON: {problem}", file=file, line=line) from None


def read_file(path: Path, kind: type[T]) -> T:
    """Return the one struct in `path`. Raises DamagedRun where it is missing or does not decode."""
    return decode(_read(path), kind, path)


def read_lines(path: Path, kind: type[T]) -> list[T]:
    """Return the structs of a JSONL file. Raises DamagedRun for any bad, torn or empty line."""
    return list(parse_lines(_read(path), kind, path))


def read_run(folder: Path) -> Run:
    """Return `run.json` of a run folder. Raises UsageError where `folder` is none."""
    if not folder.is_dir():
        raise UsageError("no such run folder", file=folder)
    return read_file(folder / "run.json", Run)


def read_items(folder: Path) -> list[Item]:
    """Return `items.jsonl` of a run folder."""
    return read_lines(folder / "items.jsonl", Item)


def read_records(folder: Path, arm: str) -> list[Record]:
    """Return the records of one arm, in file order."""
    return read_lines(folder / arm / "records.jsonl", Record)


def read_evidence(folder: Path, arm: str) -> Evidence:
    """Return the evidence of one arm."""
    return read_file(folder / arm / "evidence.json", Evidence)


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never a part.

    Raises RunIncomplete where the disk refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as problem:
        temporary.unlink(missing_ok=True)
        raise disk_error(problem, path) from None


def write_struct(path: Path, value: object) -> None:
    """Write one struct as indented JSON, atomically."""
    write_atomic(path, msgspec.json.format(encode(value), indent=2) + b"\n")


def write_lines(path: Path, values: list[T]) -> None:
    """Write structs as JSONL, atomically."""
    write_atomic(path, b"".join(encode(value) + b"\n" for value in values))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DamagedRun("is missing", file=path) from None
    except OSError as problem:
        raise DamagedRun(f"cannot be read: {problem.strerror}", file=path) from None


def parse_lines(data: bytes, kind: type[T], path: Path) -> Iterator[T]:
    """Yield the structs of JSONL bytes. Raises DamagedRun for any bad, torn or empty line."""
    if data and not data.endswith(b"\n"):
        line = data.count(b"\n") + 1
        raise DamagedRun("the last line is torn: the run was interrupted", file=path, line=line)
    decoder = msgspec.json.Decoder(kind, strict=True)
    for number, line_data in enumerate(data.split(b"\n")[:-1], start=1):
        try:
            yield decoder.decode(line_data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            decode(line_data, kind, path, number)
            raise


def _field(message: str) -> str | None:
    names = [first or second for first, second in _FIELD.findall(message)]
    return ".".join(reversed([name for name in names if name])) or None


def _require_finite(value: object, path: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path or 'value'}: {value} cannot be written")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _require_finite(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _require_finite(inner, f"{path}[{index}]")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_error(problem: OSError, path: Path) -> EvalsuiteError:
    """Return what to tell the user where `path` could not be written."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunIncomplete(
            "no space left on the disk; what was saved is whole, make room and --resume", file=path
        )
    return RunIncomplete(f"cannot be written: {problem.strerror}", file=path)
