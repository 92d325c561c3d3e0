"""Where arms' greedy tokens first leave the eager arm's, by the margin there.

    python benchmarks/equality.py RUN [--other RUN] --name equality-h200

RUN is a run folder with an eager arm. `--other` is a second run of the eager arm under another
batching: how often eager leaves itself is the noise floor of the dtype.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from evalsuite.records import Record, Run
from evalsuite.storage import read_records, read_run

RESULTS = Path(__file__).parent / "results"
BOUNDS = (1e-4, 1e-2, 0.1, 1.0)


def first_divergence(reference: Record, other: Record) -> float | None:
    """Margin of `reference` at the first token where `other` differs; None if none does."""
    mine, theirs = reference.token_ids or [], other.token_ids or []
    if mine == theirs:
        return None
    same = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)
    at = min(len(mine), len(theirs)) - 1 if same is None else same
    margins = reference.margins or []
    return margins[at] if at < len(margins) else float("inf")


def row(reference: dict[str, Record], other: dict[str, Record]) -> dict[str, Any]:
    """Counts of one arm: items compared, diverging, and these by margin."""
    margins = [
        margin
        for item, record in other.items()
        if (margin := first_divergence(reference[item], record)) is not None
    ]
    edges = (0.0, *BOUNDS, float("inf"))
    by_margin = [sum(low <= margin < high for margin in margins) for low, high in pairwise(edges)]
    answers = sum(reference[item].answer != record.answer for item, record in other.items())
    return {
        "items": len(other),
        "diverging": len(margins),
        "by_margin": by_margin,
        "largest_margin": max(margins, default=None),
        "other_answer": answers,
    }


def by_item(folder: Path, arm: str) -> dict[str, Record]:
    """The first repeat of one arm."""
    return {r.item_id: r for r in read_records(folder, arm) if r.repeat == 0}


def page(run: Run, rows: dict[str, dict[str, Any]], command: str) -> str:
    """The Markdown page."""
    heads = ["< 1e-4", "< 0.01", "< 0.1", "< 1", "1 and more"]
    lines = [
        f"# Greedy tokens against the eager arm: {run.suite}, {run.dtype}",
        "",
        f"{run.created[:10]}, {run.hardware.get('name')}, torch {run.software.get('torch')}, "
        f"{run.engine.concurrency or 'the default number of'} requests at once; `{command}`.",
        "",
        "Columns behind *diverging*: items by the eager arm's margin (top-1 minus top-2 logit) at "
        "the first token that differs. *Other answer*: items whose numeric answer differs.",
        "",
        f"| arm | items | diverging | {' | '.join(heads)} | other answer |",
        "| --- | --- | --- |" + " --- |" * (len(heads) + 1),
    ]
    for name, found in rows.items():
        buckets = " | ".join(str(count) for count in found["by_margin"])
        lines.append(
            f"| {name} | {found['items']} | {found['diverging']} | {buckets} | "
            f"{found['other_answer']} |"
        )
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--other", type=click.Path(exists=True, path_type=Path), default=None)
@click.option("--name", required=True, help="name of the result")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(run: Path, other: Path | None, name: str, out: Path) -> None:
    """Compare and write NAME.md and NAME.json."""
    described = read_run(run)
    reference = by_item(run, "eager")
    rows: dict[str, dict[str, Any]] = {}
    if other is not None:
        concurrency = read_run(other).engine.concurrency
        rows[f"eager, {concurrency} at once"] = row(reference, by_item(other, "eager"))
    for arm in described.plan.arms:
        if arm.name != "eager":
            rows[arm.name] = row(reference, by_item(run, arm.name))
    command = f"python benchmarks/equality.py RUN{' --other RUN' if other else ''} --name {name}"
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
    (out / f"{name}.md").write_text(page(described, rows, command))
    print(page(described, rows, command))


if __name__ == "__main__":
    main()
