"""From a suite to the plan of one run: which items, in which blocks, under which description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from evalsuite.arms import Arm
from evalsuite.assess import ASSESSMENT_VERSION
from evalsuite.checkout import checkout
from evalsuite.engines.base import EngineDescription
from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask, TaskItem, select
from evalsuite.records import SCHEMA, EngineInfo, Plan, Run, Shard
from evalsuite.redact import redact
from evalsuite.storage import read_items, read_records, read_run
from evalsuite.suite import Suite

# The first blocks are small so that a collapsed arm is seen after 32 and after 64 items.
FIRST_BLOCK = 32
FIRST_BLOCKS = 2

FLIPS = "flips:"

DEFAULT_BLOCK = 32
BATCHES_PER_TURN = 8
LEAST_TURNS = 4


class Turn(NamedTuple):
    """One arm's turn over one block of items, in one repeat."""

    repeat: int
    block: int
    arm: Arm
    items: tuple[str, ...]


def blocks(items: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Cut `items` into blocks of `size`, the first two of at most 32."""
    cut: list[tuple[str, ...]] = []
    start = 0
    while start < len(items):
        length = min(size, FIRST_BLOCK) if len(cut) < FIRST_BLOCKS else size
        cut.append(tuple(items[start : start + length]))
        start += length
    return cut


def block_count(plan: Plan) -> int:
    """Return how many blocks one arm answers over all repeats."""
    return plan.repeats * len(blocks(plan.items, plan.block_size))


def turns(plan: Plan, interleaved: bool) -> Iterator[Turn]:
    """Yield all turns of a run in order.

    Interleaved: block by block over all arms, backwards in odd blocks (A B C, C B A, …), so that a
    machine which slows down or warms up treats all arms alike. Otherwise arm by arm.
    """
    cut = blocks(plan.items, plan.block_size)
    numbered = [
        (repeat, repeat * len(cut) + index, items)
        for repeat in range(plan.repeats)
        for index, items in enumerate(cut)
    ]
    if not interleaved:
        for arm in plan.arms:
            for repeat, block, items in numbered:
                yield Turn(repeat, block, arm, items)
        return
    for repeat, block, items in numbered:
        for arm in plan.arms if block % 2 == 0 else reversed(plan.arms):
            yield Turn(repeat, block, arm, items)


def choose_items(task: HarnessTask, limit: int | None, source: str | None) -> tuple[TaskItem, ...]:
    """Return the items to run: those that `source` names, then at most `limit` of them by hash.

    `source` is a file with one item id a line, or `flips:RUN` for the items on which the arms of
    that run disagree. Raises UsageError for an item that the task does not have.
    """
    if source is None:
        return select(task.items, limit)
    wanted = _flipped(Path(source[len(FLIPS) :])) if source.startswith(FLIPS) else _listed(source)
    known = {entry.item.item_id: entry for entry in task.items}
    for line, identifier in wanted:
        if identifier not in known:
            raise UsageError(
                f"task {task.name} has no item {identifier!r}",
                file=source.removeprefix(FLIPS),
                line=line,
                field="item_id",
            )
    named = {identifier for _, identifier in wanted}
    chosen = [entry for entry in task.items if entry.item.item_id in named]
    return select(chosen, min(limit, len(chosen)) if limit is not None else None)


def _listed(source: str) -> list[tuple[int | None, str]]:
    path = Path(source)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as problem:
        raise UsageError(f"cannot be read: {problem.strerror}", file=path) from None
    found = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError("names no item", file=path)
    return [*found]


def _flipped(folder: Path) -> list[tuple[int | None, str]]:
    run = read_run(folder)
    outcomes: dict[str, set[bool]] = {item.item_id: set() for item in read_items(folder)}
    for arm in run.plan.arms:
        for record in read_records(folder, arm.name):
            outcomes.setdefault(record.item_id, set()).add(record.outcome == "correct")
    flipped = [item for item, seen in outcomes.items() if len(seen) > 1]
    if not flipped:
        raise UsageError("all arms agree on all items: there are no flips", file=folder)
    return [(None, item) for item in flipped]


def default_block_size(items: int, concurrency: int | None) -> int:
    """Items of one arm's turn: enough to keep the engine full, few enough for four turns.

    A turn ends with a batch that runs empty, so it should be some batches long; and ratios between
    arms need several turns.
    """
    if concurrency is None:
        return DEFAULT_BLOCK
    return max(1, min(BATCHES_PER_TURN * concurrency, -(-items // LEAST_TURNS)))


def describe_run(
    suite: Suite,
    task: HarnessTask,
    items: Sequence[TaskItem],
    engine: EngineDescription,
    shard: Shard | None = None,
) -> Run:
    """Return what run.json says of the run to come."""
    protocol = task.protocol(ASSESSMENT_VERSION, engine.chat_template, suite.thinking)
    concurrency = engine.concurrency or suite.engine.concurrency
    return Run(
        schema=SCHEMA,
        suite=suite.name,
        report_only=suite.report_only,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=Plan(
            arms=suite.parsed_arms(),
            repeats=suite.repeats,
            block_size=suite.block_size or default_block_size(len(items), concurrency),
            items=tuple(entry.item.item_id for entry in items),
        ),
        protocol=protocol,
        fingerprint=protocol.fingerprint(),
        fewshot_prefix=task.fewshot_prefix,
        engine=EngineInfo(
            kind=suite.engine.kind,
            name=engine.name,
            version=engine.version,
            concurrency=concurrency,
            options=redact(msgspec.to_builtins(suite.engine.options)),
        ),
        model=None if engine.model is None else str(redact(engine.model)),
        model_hash=engine.model_hash,
        dtype=engine.dtype,
        hardware=redact(engine.hardware),
        software=redact({**engine.software, **checkout()}),
        unavailable=suite.unavailable,
        policy=suite.policy,
        shard=shard,
    )
