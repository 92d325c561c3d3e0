"""Writing the joined run: records with new repeat and block numbers, evidence added up."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evalsuite.errors import DamagedRun, UsageError
from evalsuite.evidence import merge_evidence
from evalsuite.merge.grid import Layout
from evalsuite.merge.parts import Part
from evalsuite.records import Evidence, Plan, Record, Run
from evalsuite.storage import write_atomic, write_lines, write_struct

Records = dict[str, list[Record]]
BlockKey = tuple[int, frozenset[str]]


def write_joined(parts: Sequence[Part], layout: Layout, description: Run, out: Path) -> Run:
    """Write the joined run to `out`, all of it or nothing, and return its description.

    Raises UsageError where `out` is there already or the parts of an arm were configured
    differently.
    """
    if out.exists():
        raise UsageError("is there already", file=out)
    run = msgspec.structs.replace(
        description,
        plan=Plan(
            arms=layout.arms,
            repeats=layout.repeats,
            block_size=max(part.run.plan.block_size for part in parts),
            items=tuple(layout.items),
        ),
    )
    records = joined_records(parts, layout)
    evidence = {arm.name: _evidence(parts, arm.name) for arm in layout.arms}
    temporary = out.with_name(f".{out.name}.merging")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        for name, kept in records.items():
            write_lines(temporary / name / "records.jsonl", kept)
            found = evidence[name]
            if found is not None:
                write_struct(temporary / name / "evidence.json", found)
            log = _log(parts, name)
            if log:
                write_atomic(temporary / name / "engine.log", log)
        write_lines(temporary / "items.jsonl", list(layout.items.values()))
        write_struct(temporary / "run.json", run)
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return run


def joined_records(parts: Sequence[Part], layout: Layout) -> Records:
    """Return the records by arm, renumbered.

    Blocks of two arms get one number where they hold the same items in the same repeat, so that
    their times can be compared; every other block has a number of its own.
    """
    moved: Records = {arm.name: [] for arm in layout.arms}
    old_blocks: dict[str, list[tuple[int, int]]] = {arm.name: [] for arm in layout.arms}
    for index, part in enumerate(parts):
        for name, arm in part.arms.items():
            for record in arm.records:
                first = layout.first_repeat[index, name, record.item_id]
                repeat = record.repeat + first
                moved[name].append(msgspec.structs.replace(record, repeat=repeat))
                old_blocks[name].append((index, record.block))
    numbers: dict[BlockKey, int] = {}
    return {
        name: _renumbered(records, old_blocks[name], numbers) for name, records in moved.items()
    }


def _renumbered(
    records: list[Record], old: list[tuple[int, int]], numbers: dict[BlockKey, int]
) -> list[Record]:
    contents: dict[tuple[int, int, int], set[str]] = {}
    places = [(record.repeat, *block) for record, block in zip(records, old, strict=True)]
    for record, place in zip(records, places, strict=True):
        contents.setdefault(place, set()).add(record.item_id)
    for place in sorted(contents):
        numbers.setdefault((place[0], frozenset(contents[place])), len(numbers))
    new = {place: numbers[place[0], frozenset(ids)] for place, ids in contents.items()}
    return [
        msgspec.structs.replace(record, block=new[place])
        for record, place in zip(records, places, strict=True)
    ]


def _evidence(parts: Sequence[Part], name: str) -> Evidence | None:
    """Evidence of one arm over all its parts; None where a part of it did not come to its end."""
    joined: Evidence | None = None
    for part in parts:
        if name not in part.arms:
            continue
        found = part.arms[name].evidence
        if found is None:
            return None
        try:
            joined = merge_evidence(joined, found)
        except DamagedRun as problem:
            message = f"{name} ran otherwise than in another run: {problem.message}"
            raise UsageError(
                message, file=part.folder / name / "evidence.json", field=problem.field
            ) from None
    return joined


def _log(parts: Sequence[Part], name: str) -> bytes:
    logs = [(p.folder.name, p.arms[name].log) for p in parts if name in p.arms]
    written = [(folder, log) for folder, log in logs if log]
    if len(written) == 1:
        return written[0][1]
    return b"".join(f"== {folder}\n".encode() + log for folder, log in written)
