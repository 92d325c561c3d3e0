"""Evidence of an arm that was interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from evalsuite.errors import DamagedRun
from evalsuite.evidence import merge_evidence
from evalsuite.records import Evidence


def evidence(**changes: Any) -> Evidence:
    """Return evidence of an mtp2 arm with some fields changed."""
    fields: dict[str, Any] = {
        "engine_version": "1", "backend": "b", "graph_replays": 5, "eager_decode_steps": 0,
        "steps_by_kind": {"prefill": 2, "verify:3": 5}, "routes": {"verify:3": "sparse"},
        "drafts": 5, "drafted_tokens": 10, "accepted_per_position": [4, 2], "draft_length": 2,
        "prefix_hits": 1, "preemptions": 0, "asked": {"k": 2}, "read_back": {"k": 2},
    }  # fmt: skip
    return Evidence(**{**fields, **changes})


def test_counts_add_up_and_routes_unite() -> None:
    later = evidence(
        steps_by_kind={"decode": 1, "verify:3": 2},
        routes={"verify:3": "dense", "decode": "sparse"},
        accepted_per_position=[1, 1],
    )
    merged = merge_evidence(evidence(), later)
    assert merged.graph_replays == 10
    assert merged.steps_by_kind == {"decode": 1, "prefill": 2, "verify:3": 7}
    assert merged.routes == {"verify:3": "dense+sparse", "decode": "sparse"}
    assert merged.accepted_per_position == [5, 3]
    assert merged.draft_length == 2


def test_merging_with_nothing_changes_nothing() -> None:
    assert merge_evidence(None, evidence()) == evidence()


@pytest.mark.parametrize(
    "field",
    ["graph_replays", "eager_decode_steps", "steps_by_kind", "routes", "drafts", "prefix_hits"],
)
def test_what_one_part_cannot_tell_the_whole_cannot(field: str) -> None:
    assert getattr(merge_evidence(evidence(**{field: None}), evidence()), field) is None
    assert getattr(merge_evidence(evidence(), evidence(**{field: None})), field) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("draft_length", 1), ("backend", "c"), ("asked", {"k": 1}), ("engine_version", "2")],
)
def test_parts_of_two_configurations_are_not_merged(field: str, value: object) -> None:
    with pytest.raises(DamagedRun, match=field):
        merge_evidence(evidence(), evidence(**{field: value}))
