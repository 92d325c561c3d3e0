"""Parts of a draw: `--shard I/N` of a run, for jobs whose runs are joined afterwards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from evalsuite.errors import UsageError
from evalsuite.harness import TaskItem, drawn
from evalsuite.protocol import sha256_text
from evalsuite.records import Shard

_SHARD = re.compile(r"([1-9]\d*)/([1-9]\d*)")


class Part(NamedTuple):
    """Part `number`, counted from 1, of `of` parts."""

    number: int
    of: int


def parse_part(text: str) -> Part:
    """Return `I/N`. Raises UsageError for anything else."""
    found = _SHARD.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"{text!r} is not I/N with I from 1 to N, 2/4 say", field="shard")
    return Part(int(found[1]), int(found[2]))


def take_part(items: Sequence[TaskItem], part: Part) -> tuple[tuple[TaskItem, ...], Shard]:
    """Return every `of`-th of `items` in the order of the draw, and where they belong.

    They stay in their own order. Parts are disjoint, cover everything and differ by one item at
    most. Raises UsageError where a part would be empty.
    """
    if part.of > len(items):
        raise UsageError(f"{len(items)} items do not fill {part.of} shards", field="shard")
    chosen = {entry.item.item_id for entry in drawn(items)[part.number - 1 :: part.of]}
    places = [at for at, entry in enumerate(items) if entry.item.item_id in chosen]
    whole = hash_of([entry.item.item_id for entry in items])
    shard = Shard(index=part.number, count=part.of, whole=whole, places=tuple(places))
    return tuple(items[at] for at in places), shard


def hash_of(ids: Sequence[str]) -> str:
    """Return 16 hex digits over item ids in their order."""
    return sha256_text("\n".join(ids))[:16]
