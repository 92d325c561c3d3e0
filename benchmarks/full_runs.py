"""What full runs of the seven arms gave: accuracy, wall seconds, tokens per second.

    python benchmarks/full_runs.py RUN [RUN …] --name full-h200

Wall seconds of an arm are the sum over its blocks of last end minus first start.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import click

from evalsuite.records import Record, Run
from evalsuite.report.text import counted
from evalsuite.storage import read_evidence, read_records, read_run

RESULTS = Path(__file__).parent / "results"


def block_seconds(records: list[Record]) -> float:
    """Seconds over all blocks of one arm."""
    blocks: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        blocks[record.block].append(record)
    return sum(max(r.ended for r in b) - min(r.started for r in b) for b in blocks.values())


def figures(folder: Path, run: Run) -> dict[str, dict[str, Any]]:
    """Figures of every arm of one run."""
    found: dict[str, dict[str, Any]] = {}
    for arm in run.plan.arms:
        records, evidence = read_records(folder, arm.name), read_evidence(folder, arm.name)
        drafts, accepted = evidence.drafts or 0, evidence.accepted_per_position or []
        seconds = block_seconds(records)
        found[arm.name] = {
            "answers": len(records),
            "accuracy": sum(r.outcome == "correct" for r in records) / len(records),
            "seconds": seconds,
            "tokens_per_second": sum(r.output_tokens or 0 for r in records) / seconds,
            "accepted_length": 1 + sum(accepted) / drafts if drafts else 1.0,
            "accepted_shares": [count / drafts for count in accepted] if drafts else [],
            "graph_replays": evidence.graph_replays,
            "eager_decode_steps": evidence.eager_decode_steps,
            "routes": evidence.routes,
        }
    for name, arm_figures in found.items():
        base = "eager" if name == "graph" else "graph"
        if name != "eager" and base in found:
            arm_figures["ratio"] = arm_figures["seconds"] / found[base]["seconds"]
    return found


def page(run: Run, runs: list[dict[str, dict[str, Any]]], name: str, note: str) -> str:
    """The Markdown page; medians over the runs."""
    hardware, torch = run.hardware, run.software.get("torch")
    engine = f"torch {torch}" if torch else f"{run.engine.name} {run.engine.version}"
    lines = [
        f"# Full runs of {run.suite} on {hardware.get('name')}",
        "",
        f"{run.created[:10]}, {counted(len(runs), 'run')}, {run.dtype}, {engine}, "
        f"{run.engine.concurrency or 'the default number of'} requests at once; "
        f"`python benchmarks/full_runs.py RUN … --name {name}`. Medians over the runs; ratio: "
        "`graph` over `eager`, `mtpK` over `graph`.",
        "",
        *([note, ""] if note else []),
        "| arm | answers | accuracy | wall s | ratio | tokens/s | accepted length | accepted share "
        "by position | graph replays | eager decode steps |",
        "| --- |" + " --- |" * 9,
    ]
    for arm in runs[0]:
        column = {key: [one[arm].get(key) for one in runs] for key in runs[0][arm]}
        shares = " ".join(f"{share:.3f}" for share in runs[0][arm]["accepted_shares"]) or "–"
        ratio = f"{median(column['ratio']):.2f}" if "ratio" in column else "–"
        lines.append(
            f"| {arm} | {runs[0][arm]['answers']} | {100 * median(column['accuracy']):.2f} % | "
            f"{median(column['seconds']):.1f} | {ratio} | "
            f"{median(column['tokens_per_second']):.0f} | "
            f"{median(column['accepted_length']):.2f} | {shares} | "
            f"{runs[0][arm]['graph_replays']} | {runs[0][arm]['eager_decode_steps']} |"
        )
    total = median(sum(one[arm]["seconds"] for arm in one) for one in runs)
    lines += ["", f"All arms together: {total:.0f} s."]
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--name", required=True, help="name of the result")
@click.option("--note", default="", help="a sentence for the page")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(runs: tuple[Path, ...], name: str, note: str, out: Path) -> None:
    """Reduce and write NAME.md and NAME.json."""
    described = read_run(runs[0])
    found = [figures(folder, read_run(folder)) for folder in runs]
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
    (out / f"{name}.md").write_text(page(described, found, name, note))
    print(page(described, found, name, note))


if __name__ == "__main__":
    main()
