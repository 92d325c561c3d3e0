"""Make the sample reports of reports/sample from real runs of the miniature.

`healthy` is a run of the seven arms as they are. `wrong-verification` has fault A-01 of
`evalsuite.faults`, the one that evalsuite was begun for: the rows of speculative verification go to
an attention kernel that was built for wider rows. Plain decode stays right. Both runs are held
against the suite's baseline, or, where there is none yet, against a first run made here.

    python scripts/sample_reports.py [--limit 200] [--work FOLDER]
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from evalsuite.baseline import accept_baseline
from evalsuite.baseline_choice import baseline_path
from evalsuite.faults.catalogue import FAULTS
from evalsuite.launch import Launch
from evalsuite.paths import ROOT
from evalsuite.pipeline import run_and_judge
from evalsuite.storage import read_run
from evalsuite.suite import DEFAULT_SUITE, Overrides

OUT = ROOT / "reports" / "sample"
FILES = ("report.html", "report.md", "junit.xml", "verdict.json")
LARGEST = 2_000_000
WHY = "A first run of the miniature, made to compare the samples with."


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
    with FAULTS["A-01"].active():
        keep(run(options.work / "wrong", options.limit, str(held)), "wrong-verification")


if __name__ == "__main__":
    main()
