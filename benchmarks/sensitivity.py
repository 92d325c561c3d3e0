"""How small a corruption the gate sees, and after how many items.

    python benchmarks/sensitivity.py --name sensitivity-cpu

Three faults of growing size are injected into the arm that drafts; each trial is judged after 16
items (32 on a GPU) and each doubling, and ends when the gate is red.
"""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from evalsuite.faults.bench import Bench
from evalsuite.faults.graded import GRADES
from evalsuite.faults.trial import try_fault

RESULTS = Path(__file__).parent / "results"


def measured(bench: Bench, scratch: Path) -> list[dict[str, Any]]:
    """One row for every size of every corruption."""
    found = []
    for grade in GRADES:
        for size in grade.sizes:
            trial = try_fault(bench, grade.at(size), scratch / f"{grade.name}-{size:g}")
            if trial.problem:
                raise click.ClickException(trial.problem)
            found.append(
                {
                    "grade": grade.name,
                    "unit": grade.unit,
                    "size": size,
                    "caught": trial.caught,
                    "items": trial.items,
                    "checks": list(trial.checks),
                    "says": trial.says,
                }
            )
            word = ", ".join(trial.checks) if trial.caught else "not caught"
            click.echo(f"{grade.name} {size:g}: {word} after {trial.items} items", err=True)
    return found


def draw(rows: list[dict[str, Any]], most: int, path: Path) -> None:
    """Items until the gate was red, over the size of the corruption."""
    with mpl.rc_context({"svg.hashsalt": "evalsuite", "font.size": 9.0}):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for grade, marker in zip(GRADES, "osD", strict=True):
            mine = [row for row in rows if row["grade"] == grade.name]
            seen = [row for row in mine if row["caught"]]
            line = axes.plot(
                [r["size"] for r in seen],
                [r["items"] for r in seen],
                marker,
                ls="-",
                label=grade.unit,
            )
            missed = [row for row in mine if not row["caught"]]
            axes.plot(
                [row["size"] for row in missed],
                [most * 1.4] * len(missed),
                marker,
                color=line[0].get_color(),
                fillstyle="none",
            )
        axes.set_xscale("log")
        axes.set_yscale("log", base=2)
        axes.axhline(most * 1.2, color="0.7", lw=0.8)
        axes.set_xlabel("size of the corruption")
        axes.set_ylabel(f"items until the gate is red\n(hollow: not within {most})")
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None})


def page(rows: list[dict[str, Any]], machine: dict[str, Any], most: int, name: str) -> str:
    """The Markdown page."""
    hardware = machine["hardware"]
    lines = [
        "# How small a corruption the gate sees",
        "",
        f"{hardware['name']} ({hardware['device']}), {machine['dtype']}, torch {machine['torch']}, "
        f"{machine['date']}; at most {most} items, two arms (eager, eager-mtp3), against a healthy "
        "run of the same machine.",
        "",
        f"![items until the gate is red, by size of the corruption]({name}.svg)",
        "",
        "| corruption | size | | items | checks |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        word = "caught" if row["caught"] else "not caught"
        checks = ", ".join(row["checks"]) or "-"
        lines.append(f"| {row['unit']} | {row['size']:g} | {word} | {row['items']} | {checks} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--name", required=True, help="Stem of the files in benchmarks/results.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]))
@click.option("--items", type=int, default=128, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(name: str, device: str | None, items: int, out: Path) -> None:
    """Measure, draw, write."""
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), where, items)
        try:
            rows = measured(bench, Path(scratch))
            told = bench.remembering().describe()
        finally:
            bench.close()
    machine = {
        "hardware": dict(told.hardware),
        "dtype": told.dtype,
        "torch": torch.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    result = {"machine": machine, "items": items, "rows": rows}
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / f"{name}.md").write_text(page(rows, machine, items, name))
    draw(rows, items, out / f"{name}.svg")


if __name__ == "__main__":
    main()
