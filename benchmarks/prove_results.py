"""Join proofs that were made apart into one page of benchmarks/results.

evalsuite prove --family A --out runs/p1 --healthy 0 ; evalsuite prove --family B --out runs/p2 …
python benchmarks/prove_results.py runs/p1 runs/p2 --name prove-cpu
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from evalsuite.errors import UsageError
from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.tables import joined, summary, write

RESULTS = Path(__file__).parent / "results"


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Stem of the files in benchmarks/results.")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(folders: tuple[Path, ...], name: str, out: Path) -> None:
    """Write NAME.json and NAME.md."""
    proofs: list[dict[str, Any]] = [
        json.loads((folder / "prove.json").read_text()) for folder in folders
    ]
    try:
        proof = joined(proofs, order=list(FAULTS))
    except UsageError as problem:
        raise click.ClickException(str(problem)) from None
    write(proof, out / name, page=False)
    click.echo(summary(proof))


if __name__ == "__main__":
    main()
