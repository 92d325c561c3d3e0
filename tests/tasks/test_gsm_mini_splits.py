"""The frozen splits are what the generator makes, share nothing, and are read with clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gsm_mini
from evalsuite.errors import UsageError
from gsm_mini import splits
from gsm_mini.families import FAMILIES
from gsm_mini.rows import DATA, SPLIT_SIZES, read_rows, read_split
from gsm_mini.verify import verify

ROW = json.dumps({"question": "Two and 1?", "answer": "2+1=<<2+1=3>>3.\n#### 3"})


def test_committed_files_are_what_the_generator_makes() -> None:
    assert splits.differences() == []
    assert splits.main(["--check"]) == 0


def test_sizes_and_fields() -> None:
    assert SPLIT_SIZES["test"] == 1319
    for split, size in SPLIT_SIZES.items():
        rows = read_split(split)
        assert len(rows) == size
        assert all(list(row) == ["question", "answer", "family", "steps"] for row in rows)


def test_no_question_twice() -> None:
    questions = [row["question"] for split in SPLIT_SIZES for row in read_split(split)]
    assert len(set(questions)) == len(questions)
    assert gsm_mini.held_out_questions() == frozenset(questions)


def test_same_stream_for_two_splits_gives_no_question_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(splits.SEEDS, "validation", splits.SEEDS["test"])
    made = splits.make_splits()
    questions = [problem.question for problems in made.values() for problem in problems]
    assert len(questions) == sum(SPLIT_SIZES.values())
    assert len(set(questions)) == len(questions)


def test_every_frozen_row_verifies() -> None:
    for split in SPLIT_SIZES:
        for row in read_split(split):
            assert row["answer"].endswith(f"#### {verify(row['question'], row['answer'])}")


def test_test_split_holds_every_family() -> None:
    assert {row["family"] for row in read_split("test")} == set(FAMILIES)


def test_shots_differ_in_family_and_are_short() -> None:
    rows = read_split("fewshot")
    assert len({row["family"] for row in rows}) == len(rows)
    assert all(len(row["question"].split()) <= splits.SHOT_WORDS for row in rows)


def test_check_names_the_changed_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    splits.write_splits(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.jsonl" for name in SPLIT_SIZES}
    assert splits.differences(tmp_path) == []
    path = tmp_path / "test.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[6] = lines[6].replace("####", "###")
    path.write_text("".join(lines))
    (tmp_path / "validation.jsonl").unlink()
    (tmp_path / "fewshot.jsonl").write_text(
        "".join((DATA / "fewshot.jsonl").open().readlines()[:9])
    )
    found = "\n".join(splits.differences(tmp_path))
    assert f"{path}:7: is not what the generator makes" in found
    assert "validation.jsonl: is missing" in found
    assert "fewshot.jsonl:10: is not" in found


def test_check_command_fails_on_a_change(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(splits.SEEDS, "validation", 7)
    assert splits.main(["--check"]) == 1
    assert "validation.jsonl:1: is not what the generator makes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "", "is empty"),
        ("\n\n", "", "is empty"),
        (f"{ROW}\n{ROW[:30]}", ":2", "not JSON"),
        (f"{ROW}\n\n{ROW}\n", ":2", "an empty line"),
        (f"{ROW}\n[1]\n", ":2", "a row must be a JSON object"),
        ('{"answer": "#### 3"}\n', ":1", "question: is missing"),
        ('{"question": "Q?"}\n', ":1", "answer: is missing"),
        ('{"question": "Q?", "answer": 3}\n', ":1", "answer: is not a text"),
        ('{"question": " ", "answer": "#### 3"}\n', ":1", "question: is not a text, or is empty"),
        ('{"question": "Q?", "answer": "3"}\n', ":1", "answer: does not end in a line '####"),
        ('{"question": "Q?", "answer": "#### 3\\nand more"}\n', ":1", "answer: does not end"),
        ('{"question": "Q?", "answer": "#### x"}\n', ":1", "answer: does not end"),
    ],
)
def test_damaged_file_names_file_line_and_field(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_rows(path)
    assert f"{path}{place}: {message}" in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_file_and_bad_bytes(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(UsageError, match=r"rows\.jsonl: cannot be read"):
        read_rows(path)
    path.write_bytes(ROW.encode() + b"\n\xff\xfe\n")
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: not UTF-8"):
        read_rows(path)


def test_last_line_may_lack_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{ROW}\n{ROW}")
    assert len(read_rows(path)) == 2


def test_split_cut_between_rows_is_noticed(tmp_path: Path) -> None:
    lines = (DATA / "test.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "test.jsonl").write_text("".join(lines[:1000]))
    with pytest.raises(UsageError, match="1000 rows instead of 1319"):
        read_split("test", tmp_path)
