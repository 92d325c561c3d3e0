"""`classify`: any rows of answers in, one object a row out; bad rows end in one clear error."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from evalsuite.classify import classify_file
from evalsuite.errors import UsageError

DATA = Path(__file__).parent / "data"
KEYS = ["id", "outcome", "answer", "rule", "confidence", "start", "excerpt"]


def classified(path: Path) -> list[dict[str, Any]]:
    out = io.StringIO()
    classify_file(path, out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_every_row_gives_one_object(tmp_path: Path) -> None:
    source = [
        {"id": "a", "text": "#### 1,250", "gold": "1250", "finish_reason": "stop", "owner": "x"},
        {"id": 2, "text": "lock" * 40, "finish_reason": "length"},
        {"id": "c", "text": "", "finish_reason": "error"},
        {"id": "d", "text": "half a pair \ud83d", "token_ids": None, "gold": 3},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in source) + "\n")
    rows = classified(path)
    assert [list(row) for row in rows] == [KEYS] * 4
    assert [row["id"] for row in rows] == ["a", 2, "c", "d"]
    assert [row["outcome"] for row in rows] == ["correct", "degenerate", "error", "degenerate"]
    assert rows[0]["answer"] == "1250" and rows[0]["rule"] is None
    assert rows[1]["confidence"] == "high" and rows[1]["start"] == 0


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("{", "not JSON"),
        ("[]", "not a list"),
        ('{"id": "b"}', "text"),
        ('{"text": "b"}', "id"),
        ('{"id": 1, "text": 5}', "text"),
        ('{"id": 1, "text": "a", "token_ids": ["x"]}', "token_ids"),
        ('{"id": 1, "text": "a", "gold": "none"}', "gold"),
        ('{"id": 1, "text": "a", "prompt": 4}', "prompt"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_printed(tmp_path: Path, line: str, field: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"id": 1, "text": "5"}\n' + line + "\n")
    out = io.StringIO()
    with pytest.raises(UsageError, match=field) as caught:
        classify_file(path, out)
    assert f"{path}:2" in str(caught.value)
    assert out.getvalue() == ""


def test_a_missing_file_and_other_bytes_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="absent"):
        classify_file(tmp_path / "absent.jsonl", io.StringIO())
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="bytes"):
        classify_file(tmp_path / "bytes.jsonl", io.StringIO())


@pytest.mark.parametrize("name", ["degenerate.jsonl", "healthy.jsonl"])
def test_the_corpus_passes_through(name: str) -> None:
    rows = classified(DATA / name)
    degenerate = [row for row in rows if row["outcome"] == "degenerate"]
    assert all(row["confidence"] == "high" and row["excerpt"] is not None for row in degenerate)
    assert bool(degenerate) == (name == "degenerate.jsonl")
