"""The smallest share of wrong requests that the gate sees, from real healthy runs.

    python benchmarks/requests_hit.py RUN RUN --name requests-hit-h200

Of one arm of RUN a random share of the answers is made to end on another number, parting from eager
at a clear margin; the rest is as it was. The result is judged over draws of 16 to 512 items against
the second run. Wall time and acceptance are those of the whole run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from evalsuite.baseline_choice import Chosen
from evalsuite.judge import verdict_on
from evalsuite.policy import policy_from
from evalsuite.reference import from_run
from evalsuite.runload import load_run
from evalsuite.runview import CODE, RunView, restricted

RESULTS = Path(__file__).parent / "results"
SHARES = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4)
COUNTS = (16, 32, 64, 128, 256, 512)
SEED = 20261130
TOKEN, MARGIN = 40, 3.0


def hit(run: RunView, arm: str, share: float, dice: np.random.Generator) -> int:
    """Make a random `share` of the arm's answers wrong; returns how many were."""
    view = run.arms[arm]
    where = dice.random(view.shape) < share
    view.outcome[where] = CODE["wrong"]
    view.divergence[where], view.margin[where], view.same_text[where] = TOKEN, MARGIN, 0
    return int(where.sum())


def red(run: RunView, other: RunView, arm: str, share: float, count: int, seed: int) -> list[str]:
    """The checks that fail, wall time left out."""
    dice = np.random.default_rng((SEED, seed))
    ids = [str(one) for one in dice.choice(np.array(run.ids), count, replace=False)]
    part = restricted(run, ids)
    hit(part, arm, share, dice)
    policy = policy_from(run.run.policy)
    reference = from_run(other, ids, policy.equality)
    verdict = verdict_on(part, Chosen(reference=reference), policy)
    return sorted({finding.check for finding in verdict.reasons() if finding.check != "wall"})


def measured(run: RunView, other: RunView, arm: str, draws: int) -> list[dict[str, Any]]:
    """For every share and number of items: how many of `draws` were red, and by which checks."""
    found = []
    for share in SHARES:
        for count in COUNTS:
            seen = [red(run, other, arm, share, count, seed) for seed in range(draws)]
            checks = sorted({check for one in seen for check in one})
            caught = sum(bool(one) for one in seen)
            found.append({"share": share, "items": count, "red": caught, "checks": checks})
        click.echo(f"{share:.4f}: {[row['red'] for row in found[-len(COUNTS) :]]}", err=True)
    return found


def draw(rows: list[dict[str, Any]], draws: int, path: Path) -> None:
    """Share of draws that were red, over the items, a line for each share of requests."""
    with mpl.rc_context({"svg.hashsalt": "evalsuite", "font.size": 9.0}):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for share in SHARES:
            mine = [row for row in rows if row["share"] == share]
            shown = [row["red"] / draws for row in mine]
            axes.plot([row["items"] for row in mine], shown, "o-", label=f"1 in {1 / share:.0f}")
        axes.set_xscale("log", base=2)
        axes.set_xticks(COUNTS, [str(count) for count in COUNTS])
        axes.set_xlabel("items")
        axes.set_ylabel("share of runs that are red")
        axes.legend(frameon=False, fontsize=8, title="requests hit")
        figure.savefig(path, metadata={"Date": None})


def page(result: dict[str, Any], name: str) -> str:
    """The Markdown page."""
    hardware, draws = result["hardware"], result["draws"]
    lines = [
        "# The smallest share of wrong requests that the gate sees",
        "",
        f"A share of the answers of {result['arm']} is made wrong in real healthy runs "
        f"({hardware['name']}, {result['dtype']}, {result['of']} items), {draws} draws each, held "
        "against another healthy run. Figures are draws that were red.",
        "",
        f"![share of runs that are red, by items]({name}.svg)",
        "",
        "| requests hit | " + " | ".join(f"{count} items" for count in COUNTS) + " | checks |",
        "| --- |" + " --- |" * (len(COUNTS) + 1),
    ]
    for share in SHARES:
        mine = [row for row in result["rows"] if row["share"] == share]
        cells = [f"{row['red']} of {draws}" for row in mine]
        checks = sorted({check for row in mine for check in row["checks"]})
        lines.append(f"| 1 in {1 / share:.0f} | {' | '.join(cells)} | {', '.join(checks)} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Stem of the files in benchmarks/results.")
@click.option("--arm", default="mtp3", show_default=True)
@click.option("--draws", type=int, default=20, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(run: Path, other: Path, name: str, arm: str, draws: int, out: Path) -> None:
    """Measure, draw, write."""
    view, held = load_run(run), load_run(other)
    result = {
        "arm": arm,
        "draws": draws,
        "of": len(view.ids),
        "dtype": view.run.dtype,
        "hardware": dict(view.run.hardware),
        "rows": measured(view, held, arm, draws),
    }
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(page(result, name), encoding="utf-8")
    draw(result["rows"], draws, out / f"{name}.svg")


if __name__ == "__main__":
    main()
