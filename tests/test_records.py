"""The structs on disk: strict both ways."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsuite.errors import DamagedRun
from evalsuite.protocol import GREEDY, Chat, Protocol, Sampling, ThinkingModel
from evalsuite.records import Evidence, Item, Record
from evalsuite.storage import decode, encode, read_lines, write_lines, write_struct


def a_record(**changes: Any) -> Record:
    """Return a healthy record with some fields changed."""
    fields: dict[str, Any] = {
        "item_id": "a1", "arm": "eager", "repeat": 0, "text": "#### 3", "token_ids": [1, 2],
        "margins": [0.5, 2.0], "finish_reason": "stop", "answer": "3", "strict": "3",
        "flexible": "3", "outcome": "correct", "rule": None, "confidence": None,
        "prompt_tokens": 9, "output_tokens": 2, "started": 1.0, "ended": 2.0, "ttft_s": 0.1,
        "block": 0, "drafted": None, "accepted": None, "error": None,
    }  # fmt: skip
    return Record(**{**fields, **changes})


def a_protocol(**changes: Any) -> Protocol:
    """Return a protocol with some fields changed."""
    fields: dict[str, Any] = {
        "task": "t", "task_version": "1", "num_fewshot": 2, "prefix_sha256": "ab",
        "chat_template_sha256": None, "stops": ("Q:",), "max_tokens": 9, "sampling": GREEDY,
        "extractor": "1", "harness": "h",
    }  # fmt: skip
    return Protocol(**{**fields, **changes})


def test_a_record_on_disk_has_every_field_of_the_design_and_nulls_for_what_is_absent() -> None:
    names = [
        "item_id",
        "arm",
        "repeat",
        "text",
        "token_ids",
        "margins",
        "finish_reason",
        "answer",
        "strict",
        "flexible",
        "outcome",
        "rule",
        "confidence",
        "prompt_tokens",
        "output_tokens",
        "started",
        "ended",
        "ttft_s",
        "block",
        "drafted",
        "accepted",
        "error",
    ]
    row = json.loads(encode(a_record()))
    assert sorted(row) == sorted(names)
    assert row["rule"] is None


def test_evidence_on_disk_has_every_field_of_the_design() -> None:
    names = [
        "engine_version",
        "backend",
        "graph_replays",
        "eager_decode_steps",
        "steps_by_kind",
        "routes",
        "drafts",
        "drafted_tokens",
        "accepted_per_position",
        "draft_length",
        "prefix_hits",
        "preemptions",
        "asked",
        "read_back",
    ]
    assert sorted(Evidence.__struct_fields__) == sorted(names)


@pytest.mark.parametrize("field", Record.__struct_fields__)
def test_no_field_of_a_record_may_be_left_out(field: str) -> None:
    row = json.loads(encode(a_record()))
    del row[field]
    with pytest.raises(DamagedRun, match=f"r.jsonl:4: {field}: "):
        decode(json.dumps(row).encode(), Record, Path("r.jsonl"), 4)


def test_an_unknown_field_is_refused_by_name() -> None:
    row = {**json.loads(encode(a_record())), "extra": 1}
    with pytest.raises(DamagedRun, match=r"r\.jsonl:1: extra: .*unknown"):
        decode(json.dumps(row).encode(), Record, Path("r.jsonl"), 1)


@pytest.mark.parametrize(
    ("field", "value"),
    [("repeat", "0"), ("text", 3), ("margins", [1, "x"]), ("outcome", "fine"), ("block", 1.5),
     ("finish_reason", "eos"), ("token_ids", [None]), ("started", None)],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_field(field: str, value: object) -> None:
    row = {**json.loads(encode(a_record())), field: value}
    with pytest.raises(DamagedRun, match=field):
        decode(json.dumps(row).encode(), Record, Path("r.jsonl"), 1)


def test_a_record_without_text_must_say_why() -> None:
    assert a_record(text=None, error="timeout", outcome="error").text is None
    row = {**json.loads(encode(a_record())), "text": None}
    with pytest.raises(DamagedRun, match="text is null"):
        decode(json.dumps(row).encode(), Record, Path("r.jsonl"), 1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["started", "ttft_s", "margins"])
def test_numbers_that_json_lacks_are_not_written(field: str, bad: float, tmp_path: Path) -> None:
    record = a_record(**{field: [1.0, bad] if field == "margins" else bad})
    with pytest.raises(ValueError, match=field):
        encode(record)
    with pytest.raises(ValueError, match=field):
        write_lines(tmp_path / "r.jsonl", [record])
    with pytest.raises(ValueError, match=field):
        write_struct(tmp_path / "r.json", record)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_not_read(literal: str) -> None:
    line = encode(a_record()).replace(b'"ended":2.0', f'"ended":{literal}'.encode())
    with pytest.raises(DamagedRun, match=r"r\.jsonl:7: not JSON"):
        decode(line, Record, Path("r.jsonl"), 7)


_finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    text=st.text(),
    margins=st.none() | st.lists(_finite),
    ids=st.none() | st.lists(st.integers(0, 2**31)),
    started=_finite,
)
def test_a_record_comes_back_as_it_was_written(
    text: str, margins: list[float] | None, ids: list[int] | None, started: float
) -> None:
    record = a_record(text=text, margins=margins, token_ids=ids, started=started)
    line = encode(record)
    assert b"\n" not in line
    assert decode(line, Record, Path("r")) == record


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    good = encode(Item(item_id="a", question="q", gold=None))
    path.write_bytes(good + b"\n{broken\n" + good + b"\n")
    with pytest.raises(DamagedRun, match=r"items\.jsonl:2: not JSON"):
        read_lines(path, Item)
    path.write_bytes(good + b"\n\n")
    with pytest.raises(DamagedRun, match=r"items\.jsonl:2"):
        read_lines(path, Item)
    path.write_bytes(good + b"\n" + good[:-3])
    with pytest.raises(DamagedRun, match=r"items\.jsonl:2: the last line is torn"):
        read_lines(path, Item)


@pytest.mark.parametrize(
    ("field", "value"),
    [("task", "u"), ("task_version", "2"), ("num_fewshot", 3), ("prefix_sha256", "cd"),
     ("chat_template_sha256", "ef"), ("stops", ("Q:", "A:")), ("max_tokens", 8),
     ("sampling", Sampling(0.5, 1.0, 0)), ("extractor", "2"), ("harness", "i"),
     ("chat", Chat()), ("thinking", ThinkingModel(budget=0))],
)  # fmt: skip
def test_every_field_of_a_protocol_is_part_of_its_fingerprint(field: str, value: object) -> None:
    changed = a_protocol(**{field: value})
    assert changed.fingerprint() != a_protocol().fingerprint()
    assert [line.split(":")[0] for line in changed.differences(a_protocol())] == [
        f"protocol.{field}"
    ]


def test_a_protocol_without_chat_keeps_the_fingerprint_that_baselines_have() -> None:
    before = Protocol(
        task="gsm_mini",
        task_version="1.0",
        num_fewshot=2,
        prefix_sha256="4ef79763797c1d76339cc2dfca0b19a9a9c14ddcaddb1c32eb535d158a90ed78",
        chat_template_sha256=None,
        stops=("Question:", "</s>", "<|im_end|>"),
        max_tokens=192,
        sampling=GREEDY,
        extractor="1.1",
        harness="lm-eval 0.4.13",
    )
    assert before.fingerprint() == "a2dc75f722ce8c41"


def test_all_fields_of_a_protocol_are_covered_by_the_test_above() -> None:
    assert len(Protocol.__struct_fields__) == 12
    assert a_protocol().fingerprint() == a_protocol().fingerprint()
    assert msgspec.structs.replace(a_protocol()) == a_protocol()
