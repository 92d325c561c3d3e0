"""What README says of proofs is what the records say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import prove_results

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Lines of 25 rows of a screen, wrapped at 100 characters.
FIRST_SCREEN = 40


def test_the_proofs_summary_is_that_of_the_records() -> None:
    assert prove_results.filled(README) == README


def test_it_stands_on_the_first_screen() -> None:
    assert README.partition(prove_results.END)[0].count("\n") < FIRST_SCREEN
    assert "injected faults caught" in README


def test_a_readme_without_a_place_for_it_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no section"):
        prove_results.filled("# evalsuite\n")


def test_another_record_gives_another_line(tmp_path: Path) -> None:
    rows = [{"blind": "", "caught": True}, {"blind": "for a reason", "caught": False}]
    record = {"faults": rows, "caught": 1, "healthy": [{}] * 10, "false_alarms": 1, "seconds": 90}
    told = prove_results.told(record, "prove-cpu", "a CPU")
    told = " ".join(told.split())
    assert "**1 of 2** injected faults caught (1 more cannot be seen" in told
    assert "1 of 10 healthy runs red, in 2 minutes" in told
