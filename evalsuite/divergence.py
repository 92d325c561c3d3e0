"""An answer beside its eager twin: the first token that differs, how far the margins of the equal
tokens before it lie apart, and what the two texts show."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from evalsuite.degenerate import AnswerView
from evalsuite.degenerate.twin import twin
from evalsuite.degenerate.view import Reading
from evalsuite.errors import DamagedRun
from evalsuite.runview import EQUAL, Seen

# Margins are compared in batches of so many: one answer at a time would take as long as reading it.
BATCH = 1 << 18


class Tokens(NamedTuple):
    """Token ids and margins of one eager answer, compact."""

    ids: array[int]
    margins: array[float] | None


class Drift:
    """How far an arm's margins lie from eager's over the tokens before the first that differs.

    `largest` and `token` are given by slot: the largest distance (NaN where nothing could be
    compared) and the index of the token that has it (-1 there).
    """

    def __init__(self, slots: int) -> None:
        self.largest = [math.nan] * slots
        self.token = [-1] * slots
        self._ours, self._theirs = array("f"), array("f")
        self._lengths: list[int] = []
        self._slots: list[int] = []

    def add(self, slot: int, ours: Sequence[float], theirs: array[float], length: int) -> None:
        """Compare the first `length` margins of two answers, now or by the next `finish`."""
        length = min(length, len(ours), len(theirs))
        if length == 0:
            return
        self._ours.extend(ours[:length])
        self._theirs.extend(theirs[:length])
        self._lengths.append(length)
        self._slots.append(slot)
        if len(self._ours) >= BATCH:
            self.finish()

    def finish(self) -> None:
        """Compare what is left."""
        if not self._slots:
            return
        away = np.abs(
            np.frombuffer(self._ours, np.float32) - np.frombuffer(self._theirs, np.float32)
        )
        lengths = np.array(self._lengths)
        begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        largest = np.maximum.reduceat(away, begins)
        reached = np.flatnonzero(away == np.repeat(largest, lengths))
        owners = np.repeat(np.arange(len(lengths)), lengths)[reached]
        owned, first = np.unique(owners, return_index=True)
        tokens = reached[first] - begins[owned]
        for slot, most, token in zip(self._slots, largest.tolist(), tokens.tolist(), strict=True):
            self.largest[slot], self.token[slot] = most, token
        self._ours, self._theirs = array("f"), array("f")
        self._lengths, self._slots = [], []


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
