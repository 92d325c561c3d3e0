"""Two builds in turns over the same items."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_cli import evalsuite, write_suite

from evalsuite.ab import bisect_code, schedule
from evalsuite.cli import main
from evalsuite.storage import read_records, read_run

PROGRAM = f"{sys.executable} -m evalsuite run"


@given(count=st.integers(1, 60), slices=st.integers(1, 9))
def test_every_item_is_asked_once_by_each_side_in_turns(count: int, slices: int) -> None:
    items = [str(number) for number in range(max(count, slices))]
    parts = list(schedule(items, slices))
    for side in ("a", "b"):
        asked = [item for part in parts if part.side == side for item in part.items]
        assert sorted(asked) == sorted(items)
    assert "".join(part.side for part in parts) == ("abba" * slices)[: 2 * slices]


def test_a_worse_build_is_found_and_the_parts_become_two_runs(tmp_path: Path) -> None:
    good = write_suite(tmp_path, limit=80)
    (tmp_path / "worse").mkdir()
    worse = write_suite(tmp_path / "worse", ", bad_arm: graph, bad_accuracy: 0.3", limit=80)
    out = tmp_path / "out"
    done = evalsuite(
        "ab", good, "--a", f"{PROGRAM} {good}", "--b", f"{PROGRAM} {worse}", "--out", out,
        "--slices", 2, "--json",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    shown = json.loads(done.stdout)
    assert shown["items"] == 80
    failed = {f["arm"] for f in shown["findings"] if f["check"] == "accuracy"}
    assert failed == {"graph"}
    for side in ("a", "b"):
        run = read_run(out / side)
        assert len(set(run.plan.items)) == 80
        for arm in run.plan.arms:
            records = read_records(out / side, arm.name)
            assert sorted(record.item_id for record in records) == sorted(run.plan.items)
            blocks = {record.block for record in records}
            assert len(blocks) == 4


def ends_with(capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int | str | None, str]:
    """Run a command in this process; return its exit code and what it said of errors."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words], prog_name="evalsuite")
    return ended.value.code, capfd.readouterr().err


@pytest.mark.parametrize(("flags", "code"), [([], 3), (["--bisect"], 125)])
def test_a_build_that_does_not_run_tells_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], flags: list[str], code: int
) -> None:
    words = ["ab", write_suite(tmp_path, limit=8), "--out", tmp_path / "out", "--b", "true"]
    found = ends_with(capfd, *words, "--a", "false", *flags)
    assert found[0] == code
    assert "a ended with exit code 1" in found[1]


@pytest.mark.parametrize("command", ["no-such-program run", "unclosed '", ""])
def test_wrong_commands_are_usage_errors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words = ["ab", write_suite(tmp_path, limit=8), "--out", tmp_path / "out", "--b", "true"]
    code, told = ends_with(capfd, *words, "--a", command)
    assert code == 2
    assert "a: " in told
    assert not (tmp_path / "out").exists()


def test_codes_for_bisect() -> None:
    assert [bisect_code(code) for code in (0, 1, 2, 3)] == [0, 1, 125, 125]
