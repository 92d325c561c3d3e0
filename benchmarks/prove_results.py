"""Put proofs into benchmarks/results and their summary into README.

    evalsuite prove --out runs/p
    python benchmarks/prove_results.py runs/p --name prove-cpu

Several folders, proofs over different faults made apart, are joined into one page. Without a folder
README alone is filled anew from what lies in benchmarks/results.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import click

from evalsuite.errors import UsageError
from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.tables import joined, summary, write
from evalsuite.report.text import counted

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- proof: benchmarks/prove_results.py -->", "<!-- end of proof -->"
RECORDS = {"prove-cpu": "a CPU", "prove-h200": "an H200"}


def told(proof: dict[str, Any], name: str, where: str) -> str:
    """One record in one line of README."""
    rows, runs = proof["faults"], proof["healthy"]
    blind = sum(bool(row["blind"]) and not row["caught"] for row in rows)
    unseen = f" ({blind} more cannot be seen, and the table says why)" if blind else ""
    healthy = f"{proof['false_alarms']} of {len(runs)} healthy runs red" if runs else ""
    line = (
        f"- on {where}: **{proof['caught']} of {len(rows)}** injected faults caught{unseen}, "
        f"{healthy or 'no healthy run made beside them'}, in "
        f"{counted(round(proof['seconds'] / 60), 'minute')} "
        f"([{name}](benchmarks/results/{name}.md))"
    )
    return textwrap.fill(line, 100, subsequent_indent="  ", break_on_hyphens=False)


def section(results: Path = RESULTS) -> str:
    """The lines of README that the records in `results` give, with the marks around them."""
    lines = [BEGIN]
    for name, where in RECORDS.items():
        record = results / f"{name}.json"
        if record.is_file():
            lines.append(told(json.loads(record.read_text()), name, where))
    return "\n".join([*lines, END])


def filled(text: str, results: Path = RESULTS) -> str:
    """README with its section as the records give it. Raises ValueError where it has none."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no section {BEGIN} … {END}")
    return f"{before}{section(results)}{after}"


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--name", help="Stem of the files in benchmarks/results.")
@click.option("--note", "notes", multiple=True, help="A paragraph of the page, as often as needed.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(folders: tuple[Path, ...], name: str | None, notes: tuple[str, ...], out: Path) -> None:
    """Write NAME.json and NAME.md, and README's lines."""
    if bool(folders) != bool(name):
        raise click.UsageError("folders and --name go together")
    proofs: list[dict[str, Any]] = [
        json.loads((folder / "prove.json").read_text()) for folder in folders
    ]
    if proofs and name:
        try:
            proof = joined(proofs, list(FAULTS), notes)
        except UsageError as problem:
            raise click.ClickException(str(problem)) from None
        write(proof, out / name, page=False)
        click.echo(summary(proof))
    if out == RESULTS:
        README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
