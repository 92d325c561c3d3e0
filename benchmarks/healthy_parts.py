"""How often the gate is red for healthy runs: real full runs cut into parts, and drawn from.

    python benchmarks/healthy_parts.py RUN RUN [RUN …] --name healthy-h200

Every run is cut into ten parts of about 128 items, each judged as a run of its own against the next
run in the list over the same items. Then random draws of 128 items are judged in the same way.
Evidence, such as acceptance, is that of the whole run. Wall time is left out: what falls together
in a part was not run together.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np

from evalsuite.baseline_choice import Chosen
from evalsuite.judge import verdict_on
from evalsuite.policy import policy_from
from evalsuite.reference import from_run
from evalsuite.runload import load_run
from evalsuite.runview import RunView, restricted

RESULTS = Path(__file__).parent / "results"
PART = 128
SEED = 20261130


def alarms(run: RunView, other: RunView, ids: list[str]) -> list[str]:
    """The checks that fail for `run` over `ids`, held against `other` over the same items."""
    policy = policy_from(run.run.policy)
    part = restricted(run, ids)
    reference = from_run(restricted(other, ids), ids, policy.equality)
    verdict = verdict_on(part, Chosen(reference=reference), policy)
    told = [finding for finding in verdict.reasons() if finding.check != "wall"]
    return sorted({f"{finding.check}: {finding.message}" for finding in told})


def parts(run: RunView, count: int) -> list[list[str]]:
    """The run's items in `count` disjoint parts, in the plan's order."""
    return [list(part) for part in np.array_split(np.array(run.ids), count)]


def measured(runs: list[RunView], cuts: int, draws: int) -> dict[str, Any]:
    """Judge every part of every run, then `draws` random draws."""
    dice = np.random.default_rng(SEED)
    found: dict[str, Any] = {"parts": [], "draws": []}
    for at, run in enumerate(runs):
        other = runs[(at + 1) % len(runs)]
        for number, ids in enumerate(parts(run, cuts)):
            red = alarms(run, other, ids)
            found["parts"].append({"run": at, "part": number, "items": len(ids), "alarms": red})
            click.echo(f"run {at} part {number}: {red or 'green'}", err=True)
    for _ in range(draws):
        at = int(dice.integers(len(runs)))
        run, other = runs[at], runs[(at + 1) % len(runs)]
        ids = [str(one) for one in dice.choice(np.array(run.ids), PART, replace=False)]
        found["draws"].append(alarms(run, other, ids))
    return found


def page(result: dict[str, Any]) -> str:
    """The Markdown page."""
    parts_red = [row for row in result["parts"] if row["alarms"]]
    draws_red = [red for red in result["draws"] if red]
    hardware = result["hardware"]
    lines = [
        "# False alarms among healthy runs",
        "",
        f"{result['runs']} full runs of seven arms over {result['items']} items on "
        f"{hardware['name']} ({hardware['device']}), {result['dtype']}, each held against another; "
        "wall time, which parts do not have, is left out.",
        "",
        f"- cut into parts of {result['part']} items: {len(parts_red)} of {len(result['parts'])} "
        "alarmed",
        f"- random draws of {PART} items: {len(draws_red)} of {len(result['draws'])} alarmed",
    ]
    told = Counter(one for row in parts_red for one in row["alarms"])
    told += Counter(one for red in draws_red for one in red)
    lines += [f"- {count} times: {one}" for one, count in told.most_common()]
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Stem of the files in benchmarks/results.")
@click.option("--cuts", type=int, default=10, show_default=True, help="Parts of each run.")
@click.option("--draws", type=int, default=100, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(folders: tuple[Path, ...], name: str, cuts: int, draws: int, out: Path) -> None:
    """Judge parts and draws; write NAME.json and NAME.md."""
    if len(folders) < 2:
        raise click.UsageError("at least two runs are needed: each is held against another")
    begun = time.monotonic()
    runs = [load_run(folder) for folder in folders]
    result = {
        "runs": len(runs),
        "items": len(runs[0].ids),
        "part": len(parts(runs[0], cuts)[0]),
        "dtype": runs[0].run.dtype,
        "model_hash": runs[0].run.model_hash,
        "hardware": dict(runs[0].run.hardware),
        **measured(runs, cuts, draws),
        "seconds": round(time.monotonic() - begun, 1),
    }
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(page(result), encoding="utf-8")
    click.echo(page(result))


if __name__ == "__main__":
    main()
