"""What the detectors see: the open corpus kind by kind, gold solutions, generated answers, time.

    python benchmarks/corpus.py [--gsm8k DIR] [--generated 100000]

writes benchmarks/results/corpus.md and the raw figures beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tasks"), str(ROOT / "tests")]

from degenerate_variants import MAKERS  # noqa: E402

from evalsuite.degenerate import (  # noqa: E402
    RULES_VERSION,
    AnswerView,
    Finding,
    find,
    strongest,
)
from evalsuite.scoring import EXTRACTOR_VERSION, read_gold, read_number  # noqa: E402

DATA = ROOT / "tests" / "data"
VARIANTS = 300


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def top(row: dict[str, Any]) -> Finding | None:
    """Return the strongest finding on one corpus row."""
    fields = {name: row.get(name) for name in ("token_ids", "finish_reason", "prompt")}
    return strongest(find(AnswerView(row["text"], **fields)))


def tally(found: Iterable[Finding | None]) -> dict[str, int]:
    """Count rows, rows with any rule, rows with a high-confidence one."""
    listed = list(found)
    high = sum(f is not None and f.confidence == "high" for f in listed)
    return {"rows": len(listed), "any": sum(map(bool, listed)), "high": high}


def by_kind(name: str) -> dict[str, dict[str, int]]:
    """Tally a corpus file kind by kind."""
    found: dict[str, list[Finding | None]] = {}
    for row in rows(DATA / name):
        kind = f"{row['kind']} ({row.get('detect_via', 'healthy')})"
        found.setdefault(kind, []).append(top(row))
    return {kind: tally(found[kind]) for kind in sorted(found)}


def variants() -> dict[str, dict[str, int]]:
    """Tally synthetic variants, kind by kind, made from the plain healthy answers."""
    pairs = [
        (row["text"], row["prompt"])
        for row in rows(DATA / "healthy.jsonl")
        if row["kind"] == "plain_cot" and row.get("prompt")
    ]
    result = {}
    for kind, maker in MAKERS.items():
        rng = random.Random(f"table {kind}")
        made = [(maker(rng, *pair), pair[1]) for pair in rng.choices(pairs, k=VARIANTS)]
        result[kind] = tally(top(fields | {"prompt": prompt}) for fields, prompt in made)
    return result


def solutions(pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Tally healthy (question, answer) pairs, with the processor time of each in microseconds."""
    views = [AnswerView(a, None, "stop", f"Question: {q}\nAnswer:") for q, a in pairs]
    started = time.process_time()
    counted = tally(strongest(find(view)) for view in views)
    return {**counted, "us": round(1e6 * (time.process_time() - started) / len(views), 1)}


def extraction() -> dict[str, int]:
    """Count the extraction cases that are read as a person would."""
    cases = rows(DATA / "extraction.jsonl")
    right = 0
    for case in cases:
        number = read_number(case["response"])
        correct = number is not None and number.equals(read_gold(case["gold"]))
        right += correct == case["correct"]
    return {"rows": len(cases), "right": right}


def table(title: str, counts: dict[str, dict[str, int]]) -> list[str]:
    """Return one Markdown table."""
    lines = [f"## {title}", "", "| kind | rows | any rule | high |", "| --- | ---: | ---: | ---: |"]
    for kind, c in counts.items():
        lines.append(f"| {kind} | {c['rows']} | {c['any']} | {c['high']} |")
    total = {key: sum(c[key] for c in counts.values()) for key in ("rows", "any", "high")}
    lines.append(f"| **all** | {total['rows']} | {total['any']} | {total['high']} |")
    return [*lines, ""]


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gsm8k", type=Path, default=ROOT.parent / "shared" / "data" / "gsm8k")
    parser.add_argument("--generated", type=int, default=100_000)
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "rules": RULES_VERSION,
        "extractor": EXTRACTOR_VERSION,
        "extraction": extraction(),
        "degenerate": by_kind("degenerate.jsonl"),
        "healthy": by_kind("healthy.jsonl"),
        "variants": variants(),
        "solutions": {},
    }
    for name in ("test", "train"):
        if (options.gsm8k / f"{name}.jsonl").is_file():
            pairs = ((r["question"], r["answer"]) for r in rows(options.gsm8k / f"{name}.jsonl"))
            figures["solutions"][f"GSM8K {name}, gold solutions"] = solutions(pairs)
    from gsm_mini import generate

    made = ((p.question, p.answer) for p in generate(1, options.generated))
    figures["solutions"]["generated word problems"] = solutions(made)
    write(figures)


def write(figures: dict[str, Any]) -> None:
    """Write the page and its raw figures."""
    lines = [
        "# Reading and detection on the open corpus",
        "",
        f"Rules version {figures['rules']}, extractor version {figures['extractor']}. "
        "Written by `python benchmarks/corpus.py`.",
        "",
        f"Extraction: {figures['extraction']['right']} of {figures['extraction']['rows']} cases "
        "read as a person would.",
        "",
        *table("Degenerate answers, with what shows them", figures["degenerate"]),
        *table("Healthy answers", figures["healthy"]),
        *table("Variants made from healthy answers", figures["variants"]),
        "Some variants hold no trace: dropping a word may leave a sentence.",
        "",
        "## Healthy solutions",
        "",
        "| source | rows | any rule | high | µs an answer |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, c in figures["solutions"].items():
        lines.append(f"| {name} | {c['rows']} | {c['any']} | {c['high']} | {c['us']} |")
    results = ROOT / "benchmarks" / "results"
    results.mkdir(parents=True, exist_ok=True)
    (results / "corpus.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (results / "corpus.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
