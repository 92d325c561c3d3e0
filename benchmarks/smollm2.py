"""What a run of the suite smollm2-vllm gave: real text of a real model, and its real faults.

    evalsuite run smollm2-vllm --limit all --out RUN
    python benchmarks/smollm2.py RUN

A looping answer is counted under the detector's rule. Answers of two arms are compared by text.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import click

from evalsuite.records import Record, Run
from evalsuite.storage import read_records, read_run
from evalsuite.summary import ArmSummary, summarize

RESULTS = Path(__file__).parent / "results"
OUTCOMES = ("correct", "wrong", "no_answer", "truncated", "degenerate", "error")


def figures(summary: ArmSummary, records: list[Record], first: list[Record]) -> dict[str, Any]:
    """Return the figures of one arm; `first` are the records of the arm it is compared with."""
    texts = {record.item_id: record.text for record in first}
    same = sum(texts.get(record.item_id) == record.text for record in records)
    found: dict[str, Any] = {
        "answers": summary.answered,
        "accuracy": summary.accuracy,
        "outcomes": summary.outcomes,
        "rules": dict(Counter(r.rule for r in records if r.outcome == "degenerate")),
        "same_text_as_first_arm": same / len(records),
        "wall_s": summary.wall_s,
        "output_tokens": summary.output_tokens,
        "accepted_length": summary.accepted_length,
    }
    return found


def page(run: Run, arms: dict[str, dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    hardware, asked, names = run.hardware, run.protocol, list(arms)
    lines = [
        f"# SmolLM2-135M-Instruct on GSM8K through vLLM on {hardware['name']}",
        "",
        f"{run.created[:10]}, vLLM {run.software['vllm']}, {hardware['count']} cores shared with "
        f"other work, {run.dtype}, {asked.num_fewshot} shots, at most {asked.max_tokens} "
        f"tokens, {run.engine.concurrency} at once; `python benchmarks/smollm2.py RUN`. Wall time "
        "is that of the answers, on a machine that was not quiet.",
        "",
        f"| arm | answers | accuracy | {' | '.join(OUTCOMES)} | same text as {names[0]} | tokens | "
        "accepted length | wall s |",
        "| --- |" + " --- |" * (6 + len(OUTCOMES)),
    ]
    for name, arm in arms.items():
        counts = " | ".join(str(arm["outcomes"].get(outcome, 0)) for outcome in OUTCOMES)
        length = "–" if arm["accepted_length"] is None else f"{arm['accepted_length']:.2f}"
        lines.append(
            f"| {name} | {arm['answers']} | {100 * arm['accuracy']:.2f} % | {counts} | "
            f"{100 * arm['same_text_as_first_arm']:.1f} % | {arm['output_tokens']} | {length} | "
            f"{arm['wall_s']:.0f} |"
        )
    rules = "; ".join(f"{name}: {arm['rules']}" for name, arm in arms.items() if arm["rules"])
    return "\n".join([*lines, "", f"Degenerate answers by rule: {rules or 'none'}."]) + "\n"


@click.command()
@click.argument("run", type=click.Path(exists=True, path_type=Path))
@click.option("--name", default="smollm2-cpu", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(run: Path, name: str, out: Path) -> None:
    """Reduce RUN and write NAME.md and NAME.json."""
    described = read_run(run)
    summaries = [one for one in summarize(run) if one.answered == one.planned]
    records = {one.arm: read_records(run, one.arm) for one in summaries}
    first = records[summaries[0].arm]
    arms = {one.arm: figures(one, records[one.arm], first) for one in summaries}
    (out / f"{name}.json").write_text(json.dumps(arms, indent=1) + "\n")
    (out / f"{name}.md").write_text(page(described, arms))
    click.echo(page(described, arms))


if __name__ == "__main__":
    main()
