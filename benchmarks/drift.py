"""How far numbers of healthy runs lie apart, and how often the checks on them are red for nothing.

    python benchmarks/drift.py RUN OTHER… --name drift-cpu

The page calls each OTHER by its folder's name.

RUN is held against every OTHER, runs of the same checkpoint in the same type made under other
conditions. Margins of RUN's arms are compared with its own eager arm's, eager's mean margins and
draft counts with OTHER's. Then draws of items are judged: by the findings on margins and draft
counts alone, for an OTHER may have gone other routes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from evalsuite.baseline_choice import Chosen
from evalsuite.checks.drift import held_against
from evalsuite.judge import verdict_on
from evalsuite.policy import Equality, policy_from
from evalsuite.reference import from_run
from evalsuite.runload import load_run
from evalsuite.runview import EAGER, RunView, restricted
from evalsuite.stats import sign_flip_pvalue

RESULTS = Path(__file__).parent / "results"
DRAW = 128
SWAPS = 10_000
SEED = 20261130
SHARES = (0.5, 0.9, 0.99, 1.0)
CHECKS = ("equality", "acceptance")


def quantiles(values: np.ndarray) -> list[float]:
    """The quantiles `SHARES` of what is known of `values`, to three digits."""
    known = values[~np.isnan(values)]
    return [float(f"{value:.3g}") for value in np.quantile(known, SHARES)] if len(known) else []


def within(run: RunView) -> dict[str, list[float]]:
    """By arm, the largest distance of an answer's margins from eager's."""
    return {name: quantiles(arm.drift) for name, arm in run.arms.items() if name != EAGER}


def between(run: RunView, other: RunView) -> dict[str, Any]:
    """Eager's mean margins, and the draft counts, of `run` beside those of `other`."""
    held = set(run.ids)
    ids = [one for one in other.ids if one in held]
    run, other = restricted(run, ids), restricted(other, ids)
    reference = from_run(run, ids, Equality())
    against = held_against(other.arms[EAGER], reference.arms[EAGER])
    drafts = {
        name: int(
            (
                (arm.drafted != other.arms[name].drafted)
                | (arm.accepted != other.arms[name].accepted)
            ).sum()
        )
        for name, arm in run.arms.items()
        if arm.arm.mtp and name in other.arms
    }
    return {
        "concurrency": other.run.engine.concurrency,
        "route": _route(other),
        "items": len(ids),
        "mean_margin": [] if against is None else quantiles(against.distance),
        "other_text": 0 if against is None else int(against.other.sum()),
        "other_draft_counts": drafts,
    }


def _route(run: RunView) -> str | None:
    evidence = run.arms[EAGER].evidence
    return None if evidence is None or evidence.routes is None else evidence.routes.get("decode")


def red(run: RunView, other: RunView, ids: list[str]) -> list[str]:
    """What the checks on numbers find wrong with `other` over `ids`, held against `run`."""
    policy = policy_from(run.run.policy)
    reference = from_run(restricted(run, ids), ids, policy.equality)
    verdict = verdict_on(restricted(other, ids), Chosen(reference=reference), policy)
    return [f"{f.check}: {f.message}" for f in verdict.reasons() if f.check in CHECKS]


def swaps(run: RunView, other: RunView, count: int) -> dict[str, int]:
    """By arm, in how many of `count` cases the paired test of drafts is red where each item's two
    counts change places at random: then nothing but chance is left of their difference.

    Its limit of a change that matters is left out, so that this is the test's own rate.
    """
    limits = policy_from(run.run.policy).acceptance
    dice = np.random.default_rng(SEED)
    found = {}
    for name, arm in run.arms.items():
        if not arm.arm.mtp or name not in other.arms or set(run.ids) != set(other.ids):
            continue
        theirs = restricted(other, run.ids).arms[name]
        pair = np.stack([one.drafted[0] - one.accepted[0] for one in (arm, theirs)])
        if (pair[0] == pair[1]).all():
            continue
        swapped = np.where(dice.random((count, 1, pair.shape[1])) < 0.5, pair, pair[::-1])
        p = sign_flip_pvalue(swapped[:, :1], swapped[:, 1:], "two-sided")
        found[name] = int((p * len(run.mtp) <= limits.fail_level).sum())
    return found


def draws(run: RunView, other: RunView, count: int) -> list[list[str]]:
    """`red` over random draws of the items that both hold."""
    dice = np.random.default_rng(SEED)
    held = set(run.ids)
    both = np.array([one for one in other.ids if one in held])
    size = min(DRAW, len(both))
    return [
        red(run, other, [str(one) for one in dice.choice(both, size, replace=False)])
        for _ in range(count if size < len(both) else 1)
    ]


def page(result: dict[str, Any]) -> str:
    """The Markdown page."""
    head = " | ".join(f"{share:.0%}" for share in SHARES)
    rule = " | ".join("---" for _ in SHARES)
    machine = result["hardware"]
    lines = [
        "# How far numbers of healthy runs lie apart",
        "",
        f"{machine['name']} ({machine['device']}), {result['dtype']}; quantiles over answers.",
        "",
        "Largest distance of a margin from eager's of the same run, over equal tokens:",
        "",
        f"| arm | {head} |",
        f"| --- | {rule} |",
        *(f"| `{arm}` | {_row(values)} |" for arm, values in result["within"].items()),
        "",
        "Mean margin of eager's answer beside that of another run, over equal texts:",
        "",
        f"| the other run | decode by | at once | items | {head} | other texts "
        "| other draft counts | red draws |",
        f"| --- | --- | --- | --- | {rule} | --- | --- | --- |",
    ]
    for other in result["others"]:
        told = ", ".join(f"{arm} {n}" for arm, n in other["other_draft_counts"].items()) or "-"
        lines.append(
            f"| {other['name']} | {other['route']} | {other['concurrency']} | {other['items']} | "
            f"{_row(other['mean_margin'])} | {other['other_text']} | {told} | "
            f"{sum(map(bool, other['draws']))} of {len(other['draws'])} |"
        )
    for other in result["others"]:
        for arm, count in other["swapped"].items():
            lines += [
                "",
                f"Draft counts of `{arm}` beside those of {other['name']}, each item's two "
                f"changing places at random: the paired test is red in {count} of {SWAPS:,} cases.",
            ]
    return "\n".join(lines) + "\n"


def _row(values: list[float]) -> str:
    return " | ".join(f"{value:g}" for value in values) if values else "- | - | - | -"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("others", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Stem of the files in benchmarks/results.")
@click.option("--count", type=int, default=100, show_default=True, help="Draws for each other run.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(folder: Path, others: tuple[Path, ...], name: str, count: int, out: Path) -> None:
    """Measure drift; write NAME.json and NAME.md."""
    run = load_run(folder)
    found = []
    for path in others:
        other = load_run(path)
        swapped = swaps(run, other, SWAPS)
        found.append(
            {
                "name": path.name,
                **between(run, other),
                "swapped": swapped,
                "draws": draws(run, other, count),
            }
        )
        click.echo(f"{path.name}: {sum(map(bool, found[-1]['draws']))} red", err=True)
    result = {
        "hardware": dict(run.run.hardware),
        "dtype": run.run.dtype,
        "model_hash": run.run.model_hash,
        "within": within(run),
        "others": found,
    }
    (out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (out / f"{name}.md").write_text(page(result), encoding="utf-8")
    click.echo(page(result))


if __name__ == "__main__":
    main()
