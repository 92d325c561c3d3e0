"""Two builds or two commits against each other: their runs taken in turns, then compared.

Each side is a command that runs evalsuite, for instance `/build/b/.venv/bin/evalsuite run`. It is
called once for every slice of the items (A B, B A, …), so that a machine which slows down treats
both alike, with `--items`, `--out` and `--no-judge` added. The slices of a side become one run.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalsuite.compare import Comparison, compare_runs
from evalsuite.errors import EXIT_PASS, RunIncomplete, UsageError
from evalsuite.evidence import merge_evidence
from evalsuite.launch import task_of
from evalsuite.paths import new_folder
from evalsuite.planning import choose_items
from evalsuite.records import Evidence, Item, Record, Run
from evalsuite.storage import (
    read_evidence,
    read_items,
    read_records,
    read_run,
    write_lines,
    write_struct,
)
from evalsuite.suite import Suite

SIDES = ("a", "b")
EXIT_SKIP = 125


class Slice(NamedTuple):
    """One call of one side, over some of the items."""

    side: str
    number: int
    items: tuple[str, ...]


def run_ab(
    commands: dict[str, str], suite: Suite, items: str | None, out: Path | None, slices: int
) -> Comparison:
    """Run both sides in turns over the items of `suite` and compare B with A.

    `commands` has a command for `a` and for `b`. `out` (None: a new folder in runs/) gets the runs
    `a` and `b`, and the slices they were put together from. Raises UsageError for a bad command,
    RunIncomplete where a side does not run to its end.
    """
    words = {side: _words(side, commands[side]) for side in SIDES}
    out = out or new_folder(f"{suite.name}-ab")
    if out.exists() and any(out.iterdir()):
        raise UsageError("is not empty", file=out)
    task = task_of(suite)
    chosen = [entry.item.item_id for entry in choose_items(task, suite.limit, items)]
    if not 1 <= slices <= len(chosen):
        raise UsageError(f"{len(chosen)} items cannot be cut into {slices}", field="slices")
    parts: dict[str, list[Path]] = {side: [] for side in SIDES}
    for part in schedule(chosen, slices):
        parts[part.side].append(_run_slice(words[part.side], part, out))
    for side in SIDES:
        join_runs(parts[side], out / side)
    return compare_runs(out / "a", out / "b")


def bisect_code(code: int) -> int:
    """Return what `git bisect run` understands: 125 (skip this commit) for what told nothing."""
    return code if code in (0, 1) else EXIT_SKIP


def schedule(items: Sequence[str], slices: int) -> Iterator[Slice]:
    """Yield A B, B A, A B, … over equal slices of the items."""
    for number in range(slices):
        part = tuple(items[number::slices])
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            yield Slice(side, number, part)


def join_runs(parts: Sequence[Path], folder: Path) -> None:
    """Put the runs in `parts`, of one build over different items, together at `folder`.

    Each part becomes a block of its own. Raises RunIncomplete where they are not of one build.
    """
    runs = [read_run(part) for part in parts]
    items = [item for part in parts for item in read_items(part)]
    joined = _joined_run(runs, items, parts)
    for arm in joined.plan.arms:
        records: list[Record] = []
        evidence: Evidence | None = None
        for part in parts:
            first = 1 + max((record.block for record in records), default=-1)
            records += [
                msgspec.structs.replace(record, block=first + record.block)
                for record in read_records(part, arm.name)
            ]
            evidence = merge_evidence(evidence, read_evidence(part, arm.name))
        write_lines(folder / arm.name / "records.jsonl", records)
        write_struct(folder / arm.name / "evidence.json", evidence)
    write_lines(folder / "items.jsonl", items)
    write_struct(folder / "run.json", joined)


def _joined_run(runs: Sequence[Run], items: Sequence[Item], parts: Sequence[Path]) -> Run:
    first = runs[0]
    plan = msgspec.structs.replace(first.plan, items=tuple(item.item_id for item in items))
    joined = msgspec.structs.replace(first, plan=plan)
    for run, part in zip(runs, parts, strict=True):
        differences = joined.differences(msgspec.structs.replace(run, plan=plan))
        if differences or run.plan.arms != plan.arms:
            listed = "; ".join(differences or ("plan.arms",))
            raise RunIncomplete(f"changed between two slices: {listed}", file=part)
    return joined


def _words(side: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise UsageError(str(problem), field=side) from None
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"cannot be run: {command!r}", field=side)
    return words


def _run_slice(words: Sequence[str], part: Slice, out: Path) -> Path:
    folder = out / "slices" / f"{part.number:03d}-{part.side}"
    listed = folder.with_suffix(".items")
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.write_text("".join(f"{item}\n" for item in part.items), encoding="utf-8")
    added = ["--items", str(listed), "--limit", "all", "--out", str(folder), "--no-judge"]
    code = subprocess.run([*words, *added], stdout=sys.stderr, check=False).returncode
    if code != EXIT_PASS:
        raise RunIncomplete(f"{part.side} ended with exit code {code}", file=folder)
    return folder
