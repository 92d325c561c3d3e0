"""Make the sample reports of reports/sample from real runs of the miniature.

`healthy` is a run of the seven arms as they are. In `wrong-verification` the attention layers treat
rows of speculative verification as a kernel does that was built for one row a request: the first
row is right, the others get its result. Plain decode stays right. Both runs are held against the
suite's baseline, or, where there is none yet, against a first run made here.

    python scripts/sample_reports.py [--limit 200] [--work FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from evalsuite.baseline import accept_baseline
from evalsuite.baseline_choice import baseline_path
from evalsuite.launch import Launch
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model import decoder
from evalsuite.paths import ROOT
from evalsuite.pipeline import run_and_judge
from evalsuite.storage import read_run
from evalsuite.suite import DEFAULT_SUITE, Overrides

OUT = ROOT / "reports" / "sample"
FILES = ("report.html", "report.md", "junit.xml", "verdict.json")
LARGEST = 2_000_000
WHY = "A first run of the miniature, made to compare the samples with."


def one_row_a_request(out: Tensor, meta: StepMetadata) -> Tensor:
    """Give every row of a verification step the result of its request's first row.

    `out` has shape [T, H]; steps that prefill, or that verify nothing, are left as they are.
    """
    group = meta.decode
    if group is None or group.rows.shape[1] == 1 or meta.prefill is not None:
        return out
    return out.view(*group.rows.shape, -1)[:, :1].expand(-1, group.rows.shape[1], -1).flatten(0, 1)


@contextmanager
def wrong_verification() -> Iterator[None]:
    """Compute verification rows wrongly in both kinds of attention layers."""
    linear, sparse = decoder.linear_attention, decoder.sparse_attention

    def wrong_linear(x, weights, cache, meta, config):  # type: ignore[no-untyped-def]
        return one_row_a_request(linear(x, weights, cache, meta, config), meta)

    def wrong_sparse(x, weights, cache, meta, *rest):  # type: ignore[no-untyped-def]
        out, slots = sparse(x, weights, cache, meta, *rest)
        return one_row_a_request(out, meta), slots

    decoder.linear_attention, decoder.sparse_attention = wrong_linear, wrong_sparse
    try:
        yield
    finally:
        decoder.linear_attention, decoder.sparse_attention = linear, sparse


def run(folder: Path, limit: int, baseline: str) -> Path:
    """Run the default suite into `folder`, judged against `baseline`."""
    asked = Launch(DEFAULT_SUITE, Overrides(limit=limit), None, folder, "fresh")
    run_and_judge(asked, baseline=baseline, judged=True)
    return folder


def keep(folder: Path, name: str) -> None:
    """Copy the reports of a run to the samples. Raises SystemExit where one is too large."""
    target = OUT / name
    target.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        if (folder / file).stat().st_size > LARGEST:
            raise SystemExit(f"{folder / file} is larger than {LARGEST:,} bytes")
        shutil.copyfile(folder / file, target / file)


def main() -> None:
    """Make both samples."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--work", type=Path, default=Path("runs") / "samples")
    options = parser.parse_args()
    healthy = run(options.work / "healthy", options.limit, "auto")
    held = baseline_path(read_run(healthy))
    if not held.exists():
        root = options.work / "baselines"
        accept_baseline(healthy, WHY, who="sample_reports.py", replace=True, force=True, root=root)
        held = baseline_path(read_run(healthy), root)
        healthy = run(options.work / "again", options.limit, str(held))
    keep(healthy, "healthy")
    with wrong_verification():
        keep(run(options.work / "wrong", options.limit, str(held)), "wrong-verification")


if __name__ == "__main__":
    main()
