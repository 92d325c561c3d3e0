"""The data of the item browser: every item with its distinct answers, packed for the page.

    columns   arm and repeat of each series of answers
    accepted  arms of the baseline
    items     id, question q, gold g, variants v, cells c (one a column), accepted answers b (one an
              accepted arm), pairs p: [variant, variant, first token that differs, margins there]
    flips     items by arm, lost and gained against the baseline
    found     items that checks name, by check and arm ("" for the whole run)

Lengths and places are in UTF-16 units, as the page's script counts.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, NamedTuple

from evalsuite.report.packer import Packer
from evalsuite.report.pool import columns_of
from evalsuite.report.source import Source
from evalsuite.report.tokens import tokenizer_of
from evalsuite.runview import CODE
from evalsuite.scoring import OUTCOMES

# Bytes of base64 that the page may spend on answers; the page itself stays well below a megabyte.
BUDGET = 4_800_000


class Stage(NamedTuple):
    """How much of the answers is kept: characters of a text, and whether only of items that flip,
    or that a check names."""

    characters: int
    only_notable: bool


STAGES = (
    Stage(20_000, False),
    Stage(4_000, False),
    Stage(1_500, False),
    Stage(500, False),
    Stage(1_500, True),
    Stage(200, True),
)


class Packed(NamedTuple):
    """The browser's data as base64 of gzipped JSON, and what had to be left out (or None)."""

    data: str
    left_out: str | None


def pack(source: Source, budget: int = BUDGET) -> Packed:
    """Return the browser's data, shortened stage by stage until it fits `budget` bytes."""
    packed = Packed("", None)
    for stage in STAGES:
        packed = Packed(_encode(payload(source, stage)), _told(stage))
        if len(packed.data) <= budget:
            break
    return packed


def payload(source: Source, stage: Stage = STAGES[0]) -> dict[str, Any]:
    """Return the browser's data as plain values."""
    index = {one: at for at, one in enumerate(source.view.ids)}
    columns = columns_of(source.view)
    accepted = [] if source.baseline is None else list(source.baseline.runs[0].arms)
    notable = _notable(source, index) if stage.only_notable else None
    packer = Packer(stage.characters, tokenizer_of(source.view.run), columns, accepted)
    return {
        "columns": [[column.arm, column.repeat] for column in columns],
        "accepted": accepted,
        "outcomes": list(OUTCOMES),
        "right": CODE["correct"],
        "items": [
            packer.item(item, pool, source.answers.get(item.item_id), _keep(notable, at))
            for at, (item, pool) in enumerate(zip(source.view.items, source.pools, strict=True))
        ],
        "flips": {
            flips.arm: [[index[one] for one in side] for side in (flips.lost, flips.gained)]
            for flips in source.verdict.flips
        },
        "found": found_items(source, index),
    }


def found_items(source: Source, index: dict[str, int]) -> dict[str, dict[str, list[int]]]:
    """Return the items that findings name, by check and arm, gravest first."""
    found: dict[str, dict[str, list[int]]] = {}
    for finding in source.findings:
        places = [index[one] for one in finding.examples if one in index]
        if places:
            arms = found.setdefault(finding.check, {})
            arms[finding.arm or ""] = [*arms.get(finding.arm or "", []), *places]
    return found


def _keep(notable: set[int] | None, at: int) -> bool:
    return notable is None or at in notable


def _notable(source: Source, index: dict[str, int], limit: int = 2_000) -> set[int]:
    """Return the items worth their text in a very large run: found by a check, or flipped."""
    found = [
        place
        for arms in found_items(source, index).values()
        for places in arms.values()
        for place in places
    ]
    found += [index[one] for flips in source.verdict.flips for one in (*flips.lost, *flips.gained)]
    found += [
        at
        for at, pool in enumerate(source.pools)
        if len({cell.outcome for cell in pool.cells.values()}) > 1
    ]
    return set(found[:limit])


def _encode(value: dict[str, Any]) -> str:
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()


def _told(stage: Stage) -> str | None:
    if stage == STAGES[0]:
        return None
    scope = " and only of items that flip or that a check names" if stage.only_notable else ""
    return (
        f"This run is large: answers are kept to their first {stage.characters:,} characters"
        f"{scope}. The whole of each is in the arm's records.jsonl."
    )
