"""How small a corruption the gate sees: three faults of growing size.

    python benchmarks/sensitivity.py --name sensitivity-cpu

Each size is tried several times, each time over items of its own and with other random numbers; the
arm that drafts has the fault. Sizes halve the gap, on a logarithmic scale, in which the share of
trials that are red goes through one half.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from evalsuite.arms import Arm
from evalsuite.engines.base import Answer, Request
from evalsuite.faults.answers import Change
from evalsuite.faults.bench import BATCH, Bench, judged
from evalsuite.faults.graded import ARMS, GRADES, Grade
from evalsuite.faults.remembering import RememberingEngine, RememberingSession
from evalsuite.faults.stress import NONE
from evalsuite.report.text import counted

RESULTS = Path(__file__).parent / "results"
HALVINGS = 4


class Beside(RememberingEngine):
    """The faulty engine, with the healthy one's answers for the arms that do not draft; or, where
    the fault is a `change` of answers, the healthy one's with that change."""

    healthy: RememberingEngine
    change: Change | None = None

    def start(self, arm: Arm) -> RememberingSession:
        """A session of the healthy engine, of its own, or one that changes healthy answers."""
        if not arm.mtp:
            return self.healthy.start(arm)
        if self.change is None:
            return super().start(arm)
        return Changed(self.healthy.start(arm), self.change)


class Changed(RememberingSession):
    """Another session's answers, changed on their way."""

    def __init__(self, session: RememberingSession, change: Change) -> None:
        super().__init__(session)
        self.session, self.change = session, change

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        """Hand on the other's answers, changed."""

        def take(answer: Answer) -> None:
            for one in self.change(answer, 0):
                on_answer(one)

        self.session.generate(requests, take)


class Trials:
    """Trials of `batch` items each, held against one healthy run over all of their items."""

    def __init__(self, bench: Bench, count: int) -> None:
        self.bench, self.count = bench, count
        bench.healthy(NONE).view(ARMS, bench.batch * count)

    def red(self, grade: Grade, size: float, number: int) -> str | None:
        """The first check that fails at a size, None where none does; wall time is left out."""
        bench = self.bench
        items = bench.items[number * bench.batch : (number + 1) * bench.batch]
        folder = bench.folder / f"{grade.name}-{size:g}-{number}"
        healthy = bench.healthy(NONE)
        torch.manual_seed(number)
        with grade.at(size, number).active():
            engine = Beside(bench.engine(bench.options(NONE), bench.batch), bench.requests())
            engine.healthy = healthy.engine
            if grade.change is not None:
                engine.change = grade.change(size, number)
            try:
                bench.execute(engine, ARMS, items, folder)
            finally:
                engine.close()
        reference = healthy.reference(ARMS, [entry.item.item_id for entry in items])
        _, verdict = judged(bench, folder, reference)
        return next((one.check for one in verdict.reasons() if one.check != "wall"), None)

    def at(self, grade: Grade, size: float) -> dict[str, Any]:
        """One row: how many trials are red, and by which check first."""
        seen = [self.red(grade, size, number) for number in range(self.count)]
        first = Counter(check for check in seen if check is not None)
        row = {
            "grade": grade.name,
            "unit": grade.unit,
            "size": size,
            "red": sum(first.values()),
            "of": self.count,
            "first": dict(first.most_common()),
        }
        told = ", ".join(f"{check} {n}" for check, n in first.items()) or "none"
        click.echo(f"{grade.name} {size:.3g}: {row['red']} of {self.count} red ({told})", err=True)
        return row


def halved(grade: Grade, at: Callable[[float], dict[str, Any]], times: int) -> list[dict[str, Any]]:
    """Rows at both ends and at `times` sizes between, by size."""
    rows = [at(grade.least), at(grade.most)]
    for _ in range(times):
        sizes = [row["size"] for row in rows if 2 * row["red"] < row["of"]]
        below = max((one for one in sizes if one < grade.most), default=grade.least)
        above = min(row["size"] for row in rows if row["size"] > below)
        rows.append(at(math.sqrt(below * above)))
    return sorted(rows, key=lambda row: float(row["size"]))


def draw(rows: list[dict[str, Any]], items: int, path: Path) -> None:
    """Share of trials that were red over the size, a panel for each kind of corruption."""
    with mpl.rc_context({"svg.hashsalt": "evalsuite", "font.size": 8.5}):
        figure = Figure(figsize=(8.4, 3.0), layout="constrained")
        panels = figure.subplots(1, len(GRADES), sharey=True)
        for grade, axes in zip(GRADES, panels, strict=True):
            mine = [row for row in rows if row["grade"] == grade.name]
            shares = [row["red"] / row["of"] for row in mine]
            axes.plot([row["size"] for row in mine], shares, "o-", color="#2166ac")
            before = None
            for row, share in zip(mine, shares, strict=True):
                first = next(iter(row["first"]), None)
                # Said where it changes: names of neighbouring points would lie on each other.
                if first is not None and first != before:
                    axes.annotate(
                        first,
                        (row["size"], share),
                        xytext=(6, -11),
                        textcoords="offset points",
                        fontsize=7,
                    )
                before = first
            axes.set_xscale("log")
            axes.set_xlabel(grade.unit)
            axes.set_ylim(-0.06, 1.1)
        panels[0].set_ylabel(f"share of trials of {items} items\nthat are red")
        figure.savefig(path, metadata={"Date": None})


def page(result: dict[str, Any], name: str) -> str:
    """The Markdown page."""
    machine, items = result["machine"], result["items"]
    hardware = machine["hardware"]
    lines = [
        "# How small a corruption the gate sees",
        "",
        f"{hardware['name']} ({hardware['device']}), {machine['dtype']}, torch "
        f"{machine['software']['torch']}, {machine['date']}, "
        f"{counted(round(result['seconds'] / 60), 'minute')}. The fault is in "
        f"the arm that drafts (eager-mtp3), eager is beside it; a trial has {items} items of its "
        "own and is held against a healthy run of the same machine. A point has the name of the "
        "check that failed first in most of its red trials, where the point before has another.",
        "",
        f"![share of trials that are red, by size of the corruption]({name}.svg)",
        "",
        "| corruption | size | red trials | first check |",
        "| --- | --- | --- | --- |",
    ]
    for row in result["rows"]:
        first = ", ".join(f"{check} {count}" for check, count in row["first"].items()) or "-"
        lines.append(
            f"| {row['unit']} | {row['size']:.2g} | {row['red']} of {row['of']} | {first} |"
        )
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--name", required=True, help="Stem of the files in benchmarks/results.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]))
@click.option("--trials", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--halvings", type=click.IntRange(min=0), default=HALVINGS, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(name: str, device: str | None, trials: int, halvings: int, out: Path) -> None:
    """Measure, draw, write."""
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    begun = time.monotonic()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(Path(scratch), where, trials * BATCH[where])
        try:
            machine = bench.machine()
            tried = Trials(bench, trials)
            for grade in GRADES:
                rows += halved(grade, lambda size, grade=grade: tried.at(grade, size), halvings)
                seconds = round(time.monotonic() - begun, 1)
                result = {"machine": machine, "items": bench.batch, "seconds": seconds}
                save({**result, "rows": rows}, out, name)
        finally:
            bench.close()


def save(result: dict[str, Any], out: Path, name: str) -> None:
    """Write what there is so far: figures, page and drawing."""
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / f"{name}.md").write_text(page(result, name))
    draw(result["rows"], result["items"], out / f"{name}.svg")


if __name__ == "__main__":
    main()
