"""`evalsuite prove` in processes: the same in one and in two, and nothing left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evalsuite.cli import main
from evalsuite.faults import prove
from evalsuite.faults.workers import Done, Task

ASKED = ("prove", "E-03", "S-06", "--device", "cpu", "--items", "8", "--json")
VARYING = ("seconds", "folder", "jobs")


def proof(out: Path, *more: str) -> dict:
    done = CliRunner().invoke(main, [*ASKED, "--out", str(out), *more])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_processes_prove_what_one_does(tmp_path: Path) -> None:
    one, two = (proof(tmp_path / jobs, "--jobs", jobs, "--healthy", "1") for jobs in "12")
    assert [row["id"] for row in two["faults"]] == ["E-03", "S-06"]
    for told in (one, two):
        assert told["caught"] == 2 and told["false_alarms"] == 0
        for row in (told, *told["faults"], *told["healthy"]):
            for key in VARYING:
                row.pop(key, None)
    assert one == two


def test_what_could_not_be_carried_out_counts_against_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(tasks: list[Task], *args: object, **named: object) -> list[Done]:
        return [Done(task, None, "its process was ended by SIGSEGV", 1.0) for task in tasks[::-1]]

    monkeypatch.setattr(prove, "carried_out", dying)
    done = CliRunner().invoke(main, [*ASKED, "--out", str(tmp_path / "out"), "--healthy", "1"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert [row["id"] for row in told["faults"]] == ["E-03", "S-06"]
    assert all("SIGSEGV" in row["problem"] for row in told["faults"])
    assert told["false_alarms"] == 1 and "SIGSEGV" in told["healthy"][0]["says"]
    assert "E-03 not tried: its process was ended by SIGSEGV" in done.stderr
    assert json.loads((tmp_path / "out" / "prove.json").read_text())["total"] == 2


def test_what_wall_time_is_judged_of_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def noting(tasks: list[Task], *args: object, processes: int, **named: object) -> list[Done]:
        calls.append((processes, [task.name for task in tasks]))
        return []

    monkeypatch.setattr(prove, "carried_out", noting)
    timed = next(fault.id for fault in prove.FAULTS.values() if "wall" in fault.checks)
    # Of healthy runs 0 and 1 load the engine as usual, 2 to 5 otherwise.
    tasks = [Task("fault", "E-03"), Task("fault", timed)]
    tasks += [Task("healthy", number) for number in "012345"]
    others = ["E-03", "2", "3", "4", "5"]
    for device, shared in (("cpu", ["E-03", *"012345"]), ("cuda", others)):
        setting = prove.Setting(tmp_path, device, 8, None, ("eager",))
        assert list(prove._done(tasks, setting, 3, None)) == []
        alone = [task.name for task in tasks if task.name not in shared]
        assert calls == [(3, shared), (1, alone)]
        calls.clear()
