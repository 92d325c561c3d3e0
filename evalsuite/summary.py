"""Figures of one run by arm, computed from its records and evidence alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from evalsuite.errors import DamagedRun
from evalsuite.records import Evidence, Record
from evalsuite.storage import read_evidence, read_items, read_records, read_run

Blocks = dict[int, tuple[frozenset[tuple[str, int]], float]]


@dataclass(frozen=True)
class ArmSummary:
    """What the table shows of one arm.

    `accuracy` is our own reading, `strict` and `flexible` lm-eval's, all as shares of the records.
    `wall_s` is the sum of the blocks' wall times; `ratio` compares it with `ratio_to` over the
    blocks that both answered whole. `accepted_length` is tokens per verification step.
    """

    arm: str
    planned: int
    answered: int
    outcomes: dict[str, int]
    accuracy: float | None
    strict: float | None
    flexible: float | None
    wall_s: float
    ratio: float | None
    ratio_to: str | None
    accepted_length: float | None
    output_tokens: int | None
    evidence: Evidence | None


def summarize(folder: Path) -> list[ArmSummary]:
    """Return a summary of each arm of the run at `folder`, in plan order.

    An arm that was not finished has no evidence. Raises DamagedRun where a file does not decode.
    """
    run = read_run(folder)
    gold = {item.item_id: item.gold for item in read_items(folder)}
    records = {arm.name: _records(folder, arm.name) for arm in run.plan.arms}
    walls = {name: block_walls(arm_records) for name, arm_records in records.items()}
    planned = len(run.plan.items) * run.plan.repeats
    summaries = []
    for arm in run.plan.arms:
        reference = "graph" if arm.mtp and arm.graph else "eager"
        beside = reference if reference != arm.name and reference in walls else None
        evidence = _evidence(folder, arm.name)
        summaries.append(
            _summary(arm.name, records[arm.name], planned, gold, evidence, walls, beside)
        )
    return summaries


def block_walls(records: Iterable[Record]) -> Blocks:
    """Return for each block the (item, repeat) pairs in it and its wall time in seconds."""
    grouped: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.block].append(record)
    return {
        block: (
            frozenset((record.item_id, record.repeat) for record in group),
            max(record.ended for record in group) - min(record.started for record in group),
        )
        for block, group in grouped.items()
    }


def wall_ratio(arm: Blocks, reference: Blocks) -> float | None:
    """Return the arm's time over the reference's, on the blocks in which both hold equal items."""
    common = [key for key in arm if key in reference and arm[key][0] == reference[key][0]]
    base = sum(reference[key][1] for key in common)
    return sum(arm[key][1] for key in common) / base if base > 0 else None


def accepted_length(evidence: Evidence | None) -> float | None:
    """Return tokens per verification step: one, and the accepted drafts on average."""
    if evidence is None or not evidence.drafts or evidence.accepted_per_position is None:
        return None
    return 1 + sum(evidence.accepted_per_position) / evidence.drafts


def as_json(summaries: Sequence[ArmSummary]) -> list[dict[str, Any]]:
    """Return the summaries as plain values for `--json`."""
    return [msgspec.to_builtins(asdict(summary)) for summary in summaries]


def _summary(
    name: str,
    records: Sequence[Record],
    planned: int,
    gold: Mapping[str, str | None],
    evidence: Evidence | None,
    walls: Mapping[str, Blocks],
    beside: str | None,
) -> ArmSummary:
    count = len(records)
    outcomes = Counter(record.outcome for record in records)
    tokens = [record.output_tokens for record in records]
    known = [number for number in tokens if number is not None]

    def share(right: int) -> float | None:
        return right / count if count else None

    return ArmSummary(
        arm=name,
        planned=planned,
        answered=count,
        outcomes=dict(sorted(outcomes.items())),
        accuracy=share(outcomes["correct"]),
        strict=share(sum(_equals(record.strict, gold, record) for record in records)),
        flexible=share(sum(_equals(record.flexible, gold, record) for record in records)),
        wall_s=sum(wall for _, wall in walls[name].values()),
        ratio=None if beside is None else wall_ratio(walls[name], walls[beside]),
        ratio_to=beside,
        accepted_length=accepted_length(evidence),
        output_tokens=sum(known) if count and len(known) == count else None,
        evidence=evidence,
    )


def _equals(value: str | None, gold: Mapping[str, str | None], record: Record) -> bool:
    return value is not None and value == gold.get(record.item_id)


def _records(folder: Path, arm: str) -> list[Record]:
    return read_records(folder, arm) if (folder / arm / "records.jsonl").exists() else []


def _evidence(folder: Path, arm: str) -> Evidence | None:
    try:
        return read_evidence(folder, arm)
    except DamagedRun:
        if (folder / arm / "evidence.json").exists():
            raise
        return None
