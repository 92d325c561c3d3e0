"""Which part holds which answers of the joined run: every arm and item once per repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evalsuite.arms import Arm
from evalsuite.errors import UsageError
from evalsuite.merge.parts import Part
from evalsuite.records import Item
from evalsuite.shards import hash_of

Cell = tuple[str, str]


@dataclass(frozen=True)
class Layout:
    """The joined plan, and by (part, arm, item) the first of the repeats that the part holds."""

    arms: tuple[Arm, ...]
    items: Mapping[str, Item]
    repeats: int
    first_repeat: Mapping[tuple[int, str, str], int]


def lay_out(parts: Sequence[Part], as_repeats: bool) -> Layout:
    """Return where everything goes. Raises UsageError for overlaps and gaps."""
    arms = _arms(parts)
    items = _items(parts)
    holders: dict[Cell, list[int]] = {(arm.name, item): [] for arm in arms for item in items}
    for index, part in enumerate(parts):
        for arm in part.run.plan.arms:
            for item in part.run.plan.items:
                holders[arm.name, item].append(index)
    _refuse_gaps(holders)
    if not as_repeats:
        _refuse_overlaps(holders, parts)
    _refuse_copies(parts)
    first_repeat, repeats = {}, {}
    for (arm_name, item), indexes in holders.items():
        taken = 0
        for index in indexes:
            first_repeat[index, arm_name, item] = taken
            taken += parts[index].run.plan.repeats
        repeats[arm_name, item] = taken
    most = max(repeats.values())
    short = [cell for cell, count in repeats.items() if count < most]
    if short:
        found = f"{repeats[short[0]]} of {most} repeats for {_cells(short)}"
        raise UsageError(f"the runs hold {found}", field="repeats")
    return Layout(arms, items, most, first_repeat)


def _arms(parts: Sequence[Part]) -> tuple[Arm, ...]:
    found: dict[str, Arm] = {}
    for part in parts:
        for arm in part.run.plan.arms:
            if found.setdefault(arm.name, arm) != arm:
                message = f"{arm} is not the {found[arm.name]} of another run"
                raise UsageError(message, file=part.folder, field="plan.arms")
    return tuple(found.values())


def _items(parts: Sequence[Part]) -> dict[str, Item]:
    """Items by id, in the order of the draw where the parts know it, else of appearance."""
    found: dict[str, Item] = {}
    for part in parts:
        for key, item in part.items.items():
            if found.setdefault(key, item) != item:
                message = f"item {key} has another question or gold than in another run"
                raise UsageError(message, file=part.folder, field="items")
    if all(part.run.shard is None for part in parts):
        return found
    return {key: found[key] for key in _drawn_order(parts)}


def _drawn_order(parts: Sequence[Part]) -> list[str]:
    first, places, seen = parts[0].run.shard, dict[int, str](), set[int]()
    for part in parts:
        shard = part.run.shard
        if shard is None or first is None:
            raise UsageError("shards of a draw cannot be joined with whole runs", file=part.folder)
        if (shard.count, shard.whole) != (first.count, first.whole):
            message = f"is of another draw than {parts[0].folder}"
            raise UsageError(message, file=part.folder, field="shard")
        if len(shard.places) != len(part.run.plan.items):
            raise UsageError("places do not fit the items", file=part.folder, field="shard")
        seen.add(shard.index)
        places.update(zip(shard.places, part.run.plan.items, strict=True))
    assert first is not None
    missing = sorted(set(range(1, first.count + 1)) - seen)
    if missing:
        named = ", ".join(f"{index}/{first.count}" for index in missing)
        raise UsageError(f"missing: {named}", field="shard")
    order = [places[place] for place in sorted(places)]
    if hash_of(order) != first.whole:
        raise UsageError("the shards' items are not those of their draw", field="shard")
    return order


def _refuse_gaps(holders: Mapping[Cell, Sequence[int]]) -> None:
    missing = [cell for cell, indexes in holders.items() if not indexes]
    if missing:
        raise UsageError(f"no run holds {_cells(missing)}", field="items")


def _refuse_overlaps(holders: Mapping[Cell, Sequence[int]], parts: Sequence[Part]) -> None:
    twice = [cell for cell, indexes in holders.items() if len(indexes) > 1]
    if twice:
        one, other = (parts[index].folder for index in holders[twice[0]][:2])
        message = f"holds {_cells(twice)}, as {one} does; --as-repeats makes them repeats"
        raise UsageError(message, file=other, field="items")


def _refuse_copies(parts: Sequence[Part]) -> None:
    """Two runs cannot begin and end an answer at the same moments."""
    moments: dict[tuple[str, str, float, float], int] = {}
    for index, part in enumerate(parts):
        for arm, kept in part.arms.items():
            for record in kept.records:
                if record.ended <= record.started:
                    continue
                key = (arm, record.item_id, record.started, record.ended)
                other = moments.setdefault(key, index)
                if other != index:
                    message = f"holds the very answers of {parts[other].folder}"
                    raise UsageError(message, file=part.folder)


def _cells(cells: Sequence[Cell]) -> str:
    arm, item = cells[0]
    more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
    return f"item {item} of arm {arm}{more}"
