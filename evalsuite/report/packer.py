"""One item as the page's script reads it.

Lengths and places are in UTF-16 units, as the script counts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from evalsuite.baseline_file import ItemAnswers
from evalsuite.records import Item
from evalsuite.report.pool import Column, ItemPool, Variant
from evalsuite.report.text import one_line
from evalsuite.report.tokens import piece_lengths
from evalsuite.runview import CODE


class Packer:
    """Packs items; `characters` is how much of a text is kept."""

    def __init__(
        self,
        characters: int,
        tokenizer: Tokenizer | None,
        columns: Sequence[Column],
        accepted: Sequence[str],
    ) -> None:
        self._characters = characters
        self._tokenizer = tokenizer
        self._columns = columns
        self._accepted = accepted

    def item(
        self, item: Item, pool: ItemPool, answers: ItemAnswers | None, keep: bool
    ) -> dict[str, Any]:
        """Return one item as the page's script reads it."""
        variants = [self._variant(variant, keep) for variant in pool.variants]
        known = {variant.text: at for at, variant in enumerate(pool.variants)}
        accepted = [self._majority(answers, arm, known, variants, keep) for arm in self._accepted]
        return {
            "id": item.item_id,
            "q": self._cut(item.question),
            "g": item.gold,
            "v": variants,
            "c": [self._cell(pool, column) for column in self._columns],
            "b": accepted,
            "p": _pairs(pool.variants),
        }

    def _cell(self, pool: ItemPool, column: Column) -> list[Any] | None:
        cell = pool.cells.get(column)
        if cell is None:
            return None
        answer = None if cell.answer is None else one_line(cell.answer, 60)
        return [cell.variant, cell.outcome, cell.rule, answer, cell.output_tokens]

    def _variant(self, variant: Variant, keep: bool) -> list[Any]:
        """Return [text, token lengths, characters left out, degenerate stretch, error]."""
        if variant.text is None:
            return [None, None, 0, None, one_line(variant.error or "no answer", 300)]
        if not keep:
            return ["", None, _units(variant.text), None, None]
        text = self._cut(variant.text)
        lengths = None
        if self._tokenizer is not None and variant.ids is not None:
            lengths = piece_lengths(self._tokenizer, variant.ids.tolist(), variant.text)
        stretch = variant.stretch
        place = None
        if stretch is not None:
            ends = [_units(variant.text[:end]) for end in (stretch.start, stretch.end)]
            place = [stretch.rule, stretch.high, *ends]
        left_out = _units(variant.text) - _units(text)
        return [text, _in_units(lengths, variant.text), left_out, place, None]

    def _majority(
        self,
        answers: ItemAnswers | None,
        arm: str,
        known: dict[str | None, int],
        variants: list[list[Any]],
        keep: bool,
    ) -> list[Any] | None:
        """Return [variant, outcome, accepted answers like it, accepted answers] of an arm."""
        if answers is None:
            return None
        cells = answers.arms[arm]
        (text, outcome), count = Counter((one.text, one.outcome) for one in cells).most_common(1)[0]
        words = None if text is None else answers.texts[text]
        if words not in known:
            known[words] = len(variants)
            variants.append(self._variant(Variant(words), keep))
        return [known[words], CODE[outcome], count, len(cells)]

    def _cut(self, text: str) -> str:
        return text[: self._characters]


def _pairs(variants: Sequence[Variant]) -> list[list[Any]]:
    """Return for each two answers with ids the first token that differs and both margins there."""
    found: list[list[Any]] = []
    for (a, one), (b, other) in itertools.combinations(enumerate(variants), 2):
        if one.ids is None or other.ids is None:
            continue
        shorter = min(len(one.ids), len(other.ids))
        differ = np.flatnonzero(one.ids[:shorter] != other.ids[:shorter])
        at = int(differ[0]) if len(differ) else shorter
        if len(differ) or len(one.ids) != len(other.ids):
            found.append([a, b, at, _margin(one, at), _margin(other, at)])
    return found


def _margin(variant: Variant, at: int) -> float | None:
    if variant.margins is None or at >= len(variant.margins):
        return None
    return float(f"{float(variant.margins[at]):.4g}")


def _in_units(lengths: list[int] | None, text: str) -> list[int] | None:
    if lengths is None or text.isascii():
        return lengths
    ends = list(itertools.accumulate(lengths, initial=0))
    return [_units(text[a:b]) for a, b in itertools.pairwise(ends)]


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
