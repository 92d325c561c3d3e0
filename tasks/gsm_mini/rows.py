"""Reading rows of question and answer from JSONL files, and the frozen splits among them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from evalsuite.errors import UsageError

DATA = Path(__file__).parent / "data"
SPLIT_SIZES = {"test": 1319, "validation": 500, "fewshot": 16}

_GOLD = re.compile(r"^#### (-?[0-9][0-9,]*(?:\.[0-9]+)?)\s*\Z", re.MULTILINE)

Row = dict[str, Any]


def _text_field(row: Row, field: str, path: Path, line: int) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        told = "is missing" if field not in row else "is not a text, or is empty"
        raise UsageError(told, file=path, line=line, field=field)
    return value


def parse_row(text: str, path: Path, line: int) -> Row:
    """One line of a task file; UsageError naming file, line and field when it is not whole."""
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        told = "an empty line" if not text.strip() else f"not JSON ({error.msg}): a torn file?"
        raise UsageError(told, file=path, line=line) from error
    if not isinstance(row, dict):
        raise UsageError("a row must be a JSON object", file=path, line=line)
    _text_field(row, "question", path, line)
    if _GOLD.search(_text_field(row, "answer", path, line)) is None:
        told = "does not end in a line '#### <number>'"
        raise UsageError(told, file=path, line=line, field="answer")
    return row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", file=path) from error
    if not data.strip():
        raise UsageError("is empty", file=path)
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            yield number, raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError("not UTF-8: a torn file?", file=path, line=number) from error


def read_rows(path: Path) -> list[Row]:
    """Every row of a JSONL task file.

    UsageError, naming file, line and field, for a file that is missing, empty or torn, and for a
    row without a question, an answer or the answer's last line `#### <number>`.
    """
    return [parse_row(text, path, number) for number, text in _lines(path)]


def read_split(split: str, data: Path = DATA) -> list[Row]:
    """A frozen split (`test`, `validation`, `fewshot`); UsageError when rows are missing."""
    path = data / f"{split}.jsonl"
    rows = read_rows(path)
    if len(rows) != SPLIT_SIZES[split]:
        raise UsageError(f"{len(rows)} rows instead of {SPLIT_SIZES[split]}", file=path)
    return rows


@cache
def held_out_questions() -> frozenset[str]:
    """The questions of all frozen splits, exactly as written: what training must leave out."""
    return frozenset(row["question"] for split in SPLIT_SIZES for row in read_split(split))
