"""Greedy verification and the forced patterns, against a loop over one request."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import VOCABULARY

from evalsuite.errors import UsageError
from evalsuite.mini import forced
from evalsuite.mini.runner import Bounds
from evalsuite.mini.sequence import GenerationRequest, Sequence
from evalsuite.mini.speculate import verify


@dataclass
class Row:
    """One request's drafts, the model's choices, and the bounds."""

    choices: list[int]
    drafts: list[int]
    low: int = 0
    high: int = 5
    margins: list[float] = field(default_factory=list)


def by_hand(row: Row) -> tuple[int, list[int]]:
    """Accepted count and emitted tokens of one request."""
    agreed = 0
    while agreed < len(row.drafts) and row.drafts[agreed] == row.choices[agreed]:
        agreed += 1
    accepted = min(max(min(agreed, row.high), row.low), len(row.drafts))
    return accepted, [*row.drafts[:accepted], row.choices[accepted]]


def batch_scores(rows: list[Row], widest: int) -> torch.Tensor:
    """Logits [B, W, V] whose best entry is each row's choice, leading by its number plus one."""
    scores = torch.zeros(len(rows), widest, VOCABULARY)
    for b, row in enumerate(rows):
        for j, choice in enumerate(row.choices[:widest]):
            scores[b, j, choice] = 1.0 + j
    return scores


@st.composite
def verified_rows(draw: st.DrawFn) -> Row:
    """Drafts that agree with the choices up to somewhere."""
    choices = draw(st.lists(st.integers(0, 3), min_size=6, max_size=6))
    width = draw(st.integers(0, 5))
    drafts = [draw(st.sampled_from([choices[i], choices[i], 3])) for i in range(width)]
    low = draw(st.integers(0, 5))
    return Row(choices, drafts, low if draw(st.booleans()) else 0, draw(st.integers(low, 5)))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(verified_rows(), min_size=1, max_size=6))
def test_ragged_verification(rows: list[Row]) -> None:
    widest = 1 + max(len(row.drafts) for row in rows)
    tokens = torch.full((len(rows), widest), 3)
    for b, row in enumerate(rows):
        tokens[b, 1 : 1 + len(row.drafts)] = torch.tensor(row.drafts, dtype=torch.int64)
    result = verify(
        batch_scores(rows, widest),
        tokens,
        torch.tensor([1 + len(row.drafts) for row in rows]),
        torch.tensor([row.low for row in rows]),
        torch.tensor([row.high for row in rows]),
    )
    for b, row in enumerate(rows):
        accepted, emitted = by_hand(row)
        assert int(result.accepted[b]) == accepted
        assert result.emitted[b, : accepted + 1].tolist() == emitted
        assert result.margins[b, : accepted + 1].tolist() == [1.0 + j for j in range(accepted + 1)]


def test_a_padded_request_accepts_nothing() -> None:
    scores = torch.zeros(1, 3, VOCABULARY)
    zero = torch.zeros(1, dtype=torch.int64)
    result = verify(scores, torch.zeros(1, 3, dtype=torch.int64), zero, zero, zero + 2)
    assert result.accepted.tolist() == [0]


def counts(pattern: forced.Acceptance, steps: int) -> list[Bounds]:
    """The bounds of one request's first steps."""
    sequence = Sequence(GenerationRequest("r", (1,), 9), 0, [1])
    out = []
    for step in range(steps):
        sequence.steps = step
        out.append(pattern(sequence))
    return out


def test_patterns() -> None:
    exactly = [Bounds(n, n) for n in range(6)]
    assert counts(forced.natural(3), 2) == [Bounds(0, 3)] * 2
    assert counts(forced.accept_all(4), 2) == [exactly[4]] * 2
    assert counts(forced.accept_none(), 2) == [exactly[0]] * 2
    assert counts(forced.alternate(5), 4) == [exactly[5], exactly[0]] * 2
    assert counts(forced.accept_counts([2, 0, 1]), 4) == [exactly[n] for n in (2, 0, 1, 2)]
    assert counts(forced.accept_positions([True, True, False, True]), 1) == [exactly[2]]
    assert counts(forced.accept_positions([True, True]), 1) == [exactly[2]]
    mixed = forced.per_request({"r": forced.accept_all(1)}, forced.accept_none())
    assert counts(mixed, 1) == [exactly[1]]
    assert counts(forced.per_request({}, forced.accept_none()), 1) == [exactly[0]]


@pytest.mark.parametrize("wrong", [[], [1, -1]])
def test_counts_that_cannot_be_forced(wrong: list[int]) -> None:
    with pytest.raises(UsageError, match="counts"):
        forced.accept_counts(wrong)
