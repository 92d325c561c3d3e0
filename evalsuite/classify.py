"""Outcome, answer and rule for answers that somebody already has, as JSONL in and out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, TextIO

import msgspec

from evalsuite.degenerate import AnswerView, find, strongest
from evalsuite.errors import UsageError
from evalsuite.scoring import read_gold, score

_KINDS = {int: "a number", str: "text", list: "a list", dict: "an object", type(None): "null"}


class Row(msgspec.Struct, frozen=True):
    """One input row; other fields are passed over."""

    id: str | int
    text: str
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    prompt: str | None = None
    gold: str | int | float | None = None
    reference: str | None = None


def classify_file(path: Path, out: TextIO) -> None:
    """Write one JSON object for each row of the JSONL file `path` to `out`, in order.

    Every row is checked before the first line is written. Raises UsageError that names file, line
    and field where the file cannot be read or a row is not what it should be.
    """
    rows = [(row, _gold(path, number, row)) for number, row in _rows(path)]
    for row, gold in rows:
        out.write(json.dumps(classify(row, gold)) + "\n")


def classify(row: Row, gold: Fraction | None) -> dict[str, str | int | None]:
    """Return id, outcome, answer, rule, confidence, start and excerpt of one row."""
    view = AnswerView(
        row.text, row.token_ids, row.finish_reason, row.prompt, row.reference, _text(row.gold)
    )
    top = strongest(find(view))
    scored = score(
        row.text,
        gold=gold,
        finish_reason=row.finish_reason,
        degenerate=top is not None and top.confidence == "high",
    )
    return {
        "id": row.id,
        "outcome": scored.outcome,
        "answer": scored.answer,
        "rule": top.rule if top else None,
        "confidence": top.confidence if top else None,
        "start": top.start if top else None,
        "excerpt": top.excerpt if top else None,
    }


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", file=path) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield number, _row(path, number, line)


def _row(path: Path, number: int, line: str) -> Row:
    # The json module, and not msgspec, because it lets half of a surrogate pair through: such
    # text is what a broken detokenizer writes.
    try:
        value: Any = json.loads(line)
    except (json.JSONDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"not JSON: {error}", file=path, line=number) from error
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "something else")
        raise UsageError(f"a row is an object, not {kind}", file=path, line=number)
    for field in ("id", "text"):
        if value.get(field) is None:
            raise UsageError("missing", file=path, line=number, field=field)
    try:
        return msgspec.convert(value, Row)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        place = where.rstrip("`") or None
        raise UsageError(message, file=path, line=number, field=place) from error


def _text(gold: str | int | float | None) -> str | None:
    return None if gold is None else str(gold)


def _gold(path: Path, number: int, row: Row) -> Fraction | None:
    if row.gold is None:
        return None
    try:
        return read_gold(str(row.gold))
    except ValueError as error:
        raise UsageError(str(error), file=path, line=number, field="gold") from error
