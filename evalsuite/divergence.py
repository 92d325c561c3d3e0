"""An answer beside its eager twin: the first token that differs, and what the two texts show."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from evalsuite.degenerate import AnswerView
from evalsuite.degenerate.twin import twin
from evalsuite.degenerate.view import Reading
from evalsuite.errors import DamagedRun
from evalsuite.runview import EQUAL, Seen


class Tokens(NamedTuple):
    """Token ids and margins of one eager answer, compact."""

    ids: array[int]
    margins: array[float] | None


def packed(ids: list[int]) -> array[int]:
    """Return token ids in 8 bytes each. Raises DamagedRun for one that does not fit."""
    try:
        return array("q", ids)
    except OverflowError:
        raise DamagedRun("a token id does not fit 64 bits", field="token_ids") from None


def first_divergence(
    ours: array[int], margins: list[float] | None, eager: Tokens
) -> tuple[int, float]:
    """Index of the first token that differs from eager's (or EQUAL), and the margin there."""
    if ours == eager.ids:
        return EQUAL, math.nan
    pairs = enumerate(zip(ours, eager.ids, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(eager.ids)))
    # Where only one of the two went on, only that one has a margin there.
    for side in (eager.margins, margins):
        if side is not None and at < len(side):
            return at, float(side[at])
    return at, math.nan


def beside_twin(text: str, theirs: str, at: tuple[int, int]) -> Iterator[Seen]:
    """Yield what the detectors see in `text` beside eager's `theirs`; `at` is (repeat, item)."""
    ours, others = text.split(), theirs.split()
    longer, shorter = (ours, others) if len(ours) >= len(others) else (others, ours)
    # Aligning two texts is slow, and only a text held whole inside the other can be a find.
    remaining = iter(longer)
    if not all(word in remaining for word in shorter):
        return
    for finding in twin(Reading(AnswerView(text, reference=theirs))):
        yield Seen(*at, finding.rule, finding.confidence == "high")
