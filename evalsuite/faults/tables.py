"""A proof as a table: in a terminal, as Markdown, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from evalsuite.errors import UsageError
from evalsuite.faults.confusion import as_lines
from evalsuite.faults.fault import FAMILIES
from evalsuite.report.text import markdown
from evalsuite.show import table_of

Proof = dict[str, Any]
Row = dict[str, Any]


def write(proof: Proof, stem: Path, *, page: bool = True) -> None:
    """Write `stem`.json and .md, and .html where a page is wanted."""
    text = json.dumps(proof, indent=1, ensure_ascii=False, allow_nan=False)
    stem.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(as_markdown(proof), encoding="utf-8")
    if page:
        from evalsuite.faults.page import render

        stem.with_suffix(".html").write_text(render(proof), encoding="utf-8")


def joined(proofs: Sequence[Proof], order: Sequence[str], notes: Sequence[str] = ()) -> Proof:
    """Join proofs over different faults; faults in `order`. `notes` stand on the page.

    Processors may differ, and are all named; what decides an answer may not. Raises UsageError
    where device, type or checkpoint differ, or a fault is there twice.
    """
    machines = [proof["machine"] for proof in proofs]
    first = machines[0]
    for other in machines[1:]:
        differing = [key for key in ("dtype", "model_hash") if other[key] != first[key]]
        if other["hardware"]["device"] != first["hardware"]["device"]:
            differing.append("device")
        if differing:
            raise UsageError(f"proofs differ in {', '.join(differing)}")
    names = dict.fromkeys(machine["hardware"]["name"] for machine in machines)
    machine = {
        **first,
        "hardware": {**first["hardware"], "name": " and ".join(names)},
        "items": max(machine["items"] for machine in machines),
        "batch": min(machine["batch"] for machine in machines),
    }
    rows = [row for proof in proofs for row in proof["faults"]]
    ids = [row["id"] for row in rows]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        raise UsageError(f"more than one trial of {', '.join(twice)}")
    rows.sort(key=lambda row: order.index(row["id"]))
    return {
        "faults": rows,
        "caught": sum(row["caught"] for row in rows),
        "total": len(rows),
        "false_alarms": sum(proof["false_alarms"] for proof in proofs),
        "healthy": [run for proof in proofs for run in proof["healthy"]],
        "machine": machine,
        "jobs": max(proof.get("jobs", 1) for proof in proofs),
        "seconds": round(sum(proof["seconds"] for proof in proofs), 1),
        "notes": list(notes),
    }


def word(row: Row) -> str:
    """What became of a fault, in a word or two."""
    if row["problem"]:
        return "not tried"
    if not row["caught"]:
        return "not caught"
    return "caught" if row["as_expected"] else "caught otherwise"


def reason(row: Row) -> str:
    """What the report says of a fault, or why it says nothing."""
    return str(row["problem"] or row["says"] or row["blind"] or "nothing")


def summary(proof: Proof) -> str:
    """The proof in a sentence."""
    rows, runs = proof["faults"], proof["healthy"]
    told = f"{proof['caught']} of {len(rows)} injected faults caught"
    blind = [row["id"] for row in rows if not row["caught"] and row["blind"]]
    missed = [row["id"] for row in rows if not row["caught"] and not row["blind"]]
    if blind:
        told += f"; {', '.join(blind)} cannot be seen, and the table says why"
    if missed:
        told += f"; not caught: {', '.join(missed)}"
    return f"{told}; {proof['false_alarms']} false alarms in {len(runs)} healthy runs"


def terminal(proof: Proof) -> list[RenderableType]:
    """What `prove` shows."""
    rows = [
        [row["id"], word(row), ", ".join(row["checks"]) or "-", str(row["items"]),
         f"{row['seconds']:.0f}", reason(row)]
        for row in proof["faults"]
    ]  # fmt: skip
    shown: list[RenderableType] = [
        table_of(["fault", "", "checks", "items", "s", "what the report says"], rows)
    ]
    if proof["healthy"]:
        runs = [
            [run["name"], "ALARM" if run["alarms"] else "green", run["says"] or "-"]
            for run in proof["healthy"]
        ]
        shown.append(table_of(["healthy run", "", "what the report says"], runs))
    return [*shown, summary(proof)]


def as_markdown(proof: Proof) -> str:
    """The page for `benchmarks/results`."""
    machine = proof["machine"]
    hardware = machine["hardware"]
    lines = [
        "# Injected faults and healthy runs",
        "",
        f"{summary(proof)}. {hardware['name']} ({hardware['device']}), {machine['dtype']}, torch "
        f"{machine['software']['torch']}, {machine['date']}, {proof['seconds'] / 60:.0f} minutes"
        f"{_processes(proof)}. "
        f"A trial is judged after {machine['batch']} items and each doubling up to "
        f"{machine['items']}, and ends when the gate is red. Each fault is held against a healthy "
        "run of the same machine.",
        "",
        *[line for note in proof.get("notes", ()) for line in (note, "")],
        *_absent(proof),
    ]
    for letter, name in FAMILIES.items():
        rows = [row for row in proof["faults"] if row["family"] == letter]
        if rows:
            lines += _family(letter, name, rows)
    lines += _healthy(proof)
    lines += as_lines(proof)
    return "\n".join(lines) + "\n"


def _processes(proof: Proof) -> str:
    count = proof.get("jobs", 1)
    shared = " that share the GPU through MPS" if proof["machine"].get("mps") else ""
    return f" in {count} processes{shared}" if count > 1 else ""


def _absent(proof: Proof) -> list[str]:
    """Say which faults of the catalogue were not tried."""
    from evalsuite.faults.catalogue import FAULTS

    tried = {row["id"] for row in proof["faults"]}
    left = [name for name in FAULTS if name not in tried]
    if not left:
        return []
    return [f"Not tried here, of {len(FAULTS)} in the catalogue: {', '.join(left)}.", ""]


def _family(letter: str, name: str, rows: list[Row]) -> list[str]:
    caught = sum(row["caught"] for row in rows)
    lines = [
        f"## {letter}: {name} ({caught} of {len(rows)})",
        "",
        "| fault | what is done | arms | | checks that failed | items | s | what the report says | "
        "likely family |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        conditions = "" if row["conditions"].startswith("as in") else f" ({row['conditions']})"
        cells = [
            f"{row['id']} {row['title']} ({row['source']})",
            row["changes"] + conditions,
            ", ".join(row["arms"]),
            word(row),
            ", ".join(row["checks"]) or "-",
            str(row["items"]),
            f"{row['seconds']:.0f}",
            reason(row),
            row["likely_family"] or "-",
        ]
        lines.append("| " + " | ".join(markdown(cell) for cell in cells) + " |")
    return [*lines, ""]


def _untimed(proof: Proof) -> list[str]:
    if proof["machine"]["hardware"]["device"] == "cpu":
        return []
    return ["Wall time is judged where the load is the usual one: other orders and blocks.", ""]


def _healthy(proof: Proof) -> list[str]:
    if not proof["healthy"]:
        return []
    lines = [
        "## Healthy runs",
        "",
        *_untimed(proof),
        "| run | items | | what the report says |",
        "| --- | --- | --- | --- |",
    ]
    for run in proof["healthy"]:
        cells = [
            *(run["name"], str(run["items"])),
            *("ALARM" if run["alarms"] else "green", run["says"] or "-"),
        ]
        lines.append("| " + " | ".join(markdown(cell) for cell in cells) + " |")
    return [*lines, ""]
