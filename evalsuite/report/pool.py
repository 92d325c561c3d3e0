"""The answers of a run by item, each distinct one kept once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from evalsuite.degenerate import AnswerView, find, strongest
from evalsuite.degenerate.view import Finding
from evalsuite.records import Record
from evalsuite.runview import CODE, RunView

Ids = np.ndarray[tuple[int], np.dtype[np.int32]]
Margins = np.ndarray[tuple[int], np.dtype[np.float32]]
# Rules whose find lasts to the end of the answer.
LASTING = frozenset({"loop", "drifting_loop", "few_words", "near_loop", "id_loop"})


class Column(NamedTuple):
    """One series of answers: an arm in one repeat."""

    arm: str
    repeat: int


class Stretch(NamedTuple):
    """Where a rule saw something: characters `start` to `end` of the text."""

    rule: str
    high: bool
    start: int
    end: int


@dataclass(frozen=True)
class Variant:
    """A distinct answer: text (None where none was obtained), token ids and margins."""

    text: str | None
    ids: Ids | None = None
    margins: Margins | None = None
    finish: str | None = None
    error: str | None = None
    stretch: Stretch | None = None


class Cell(NamedTuple):
    """One answer: index of its variant, outcome code, rule seen, value read, tokens."""

    variant: int
    outcome: int
    rule: str | None
    answer: str | None
    output_tokens: int | None


@dataclass
class ItemPool:
    """All answers to one item; margins are those of the first arm that gave a variant."""

    variants: list[Variant] = field(default_factory=list)
    cells: dict[Column, Cell] = field(default_factory=dict)
    places: dict[tuple[object, ...], int] = field(default_factory=dict)

    def place(self, key: tuple[object, ...], variant: Variant) -> int:
        """Return the index of a variant, which is added where it is new."""
        if key not in self.places:
            self.places[key] = len(self.variants)
            self.variants.append(variant)
        return self.places[key]


def columns_of(view: RunView) -> list[Column]:
    """Return the series of a run: arms in the plan's order, repeats within."""
    return [Column(arm, repeat) for arm in view.arms for repeat in range(view.arms[arm].shape[0])]


def pools_of(view: RunView) -> list[ItemPool]:
    """Return the answers to each item, in the plan's order.

    Reads the records as far as the judge did: what is wrong with them is told by the verdict.
    """
    index = {one: at for at, one in enumerate(view.ids)}
    pools = [ItemPool() for _ in view.ids]
    for name, arm in view.arms.items():
        rules = {(seen.repeat, seen.item): seen.rule for seen in reversed(arm.seen)}
        rules |= {(s.repeat, s.item): s.rule for s in reversed(arm.seen) if s.high}
        for record in readable_records(view.folder / name / "records.jsonl"):
            at = index.get(record.item_id)
            column = Column(name, record.repeat)
            if at is None or record.arm != name or not 0 <= record.repeat < arm.shape[0]:
                continue
            if column in pools[at].cells:
                continue
            outcome = int(arm.outcome[record.repeat, at])
            rule = rules.get((record.repeat, at))
            flagged = rule is not None
            pools[at].cells[column] = Cell(
                _placed(pools[at], record, view.items[at].question, flagged),
                outcome,
                rule,
                record.answer,
                record.output_tokens,
            )
    return pools


def readable_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file up to the first line that is torn or does not decode."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Record, strict=True)
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return


def _placed(pool: ItemPool, record: Record, question: str, flagged: bool) -> int:
    ids = None if record.token_ids is None else np.array(record.token_ids, np.int32)
    key = (record.text, None if ids is None else ids.tobytes(), record.finish_reason, record.error)
    if key in pool.places:
        return pool.places[key]
    margins = None if record.margins is None else np.array(record.margins, np.float32)
    variant = Variant(
        text=record.text,
        ids=ids,
        margins=margins,
        finish=record.finish_reason,
        error=record.error,
        stretch=_stretch(record, question) if flagged else None,
    )
    return pool.place(key, variant)


def _stretch(record: Record, question: str) -> Stretch | None:
    if record.text is None:
        return None
    ids = None if record.token_ids is None else tuple(record.token_ids)
    found = find(
        AnswerView(record.text, token_ids=ids, finish_reason=record.finish_reason, prompt=question)
    )
    best: Finding | None = strongest(found)
    if best is None:
        return None
    end = len(record.text) if best.rule in LASTING else best.start + len(best.excerpt)
    return Stretch(best.rule, best.confidence == "high", best.start, min(end, len(record.text)))


def is_right(cell: Cell) -> bool:
    """Whether an answer is correct."""
    return cell.outcome == CODE["correct"]
