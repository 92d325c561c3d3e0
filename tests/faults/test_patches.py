"""Patches go in and come out whole, a lost seam is an error, and normal runs know of none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evalsuite.faults.catalogue import FAULTS
from evalsuite.faults.fault import Fault
from evalsuite.faults.patch import Patch, installed
from evalsuite.mini.scheduler import Scheduler

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_every_fault_finds_its_seams_and_leaves_them_as_they_were(fault: Fault) -> None:
    places = [patch.place() for patch in fault.patches()]
    before = [getattr(owner, name) for owner, name in places]
    with fault.active(), fault.stress.active():
        now = [getattr(owner, name) for owner, name in places]
        assert all(new is not old for new, old in zip(now, before, strict=True))
    assert [getattr(owner, name) for owner, name in places] == before


def test_a_fault_changes_something() -> None:
    idle = [f.id for f in FAULTS.values() if not f.patches() and f.tamper.__name__ == "_untouched"]
    assert idle == []


@pytest.mark.parametrize(
    "target", ["evalsuite.mini.runner:gone", "evalsuite.mini.engine:Gone.step"]
)
def test_a_seam_that_is_gone_is_an_error(target: str) -> None:
    with pytest.raises(LookupError, match=target), installed([Patch(target, lambda _: None)]):
        pass


def test_seams_are_put_back_after_an_error() -> None:
    before = Scheduler.plan
    patches = [
        Patch("evalsuite.mini.scheduler:Scheduler.plan", lambda _: None),
        Patch("evalsuite.mini.scheduler:Scheduler.gone", lambda _: None),
    ]
    with pytest.raises(LookupError), installed(patches):
        pass
    assert Scheduler.plan is before


def test_two_patches_on_one_seam_come_out_in_turn() -> None:
    before = Scheduler.plan
    target = "evalsuite.mini.scheduler:Scheduler.plan"
    with installed([Patch(target, lambda _: 1), Patch(target, lambda _: 2)]):
        assert Scheduler.plan == 2
    assert Scheduler.plan is before


def test_normal_runs_import_no_fault() -> None:
    """Neither the engine nor the pipeline can switch one on: the package is not even loaded."""
    code = (
        "import sys, evalsuite.cli, evalsuite.pipeline, evalsuite.engines.mini, evalsuite.judge, "
        "evalsuite.report\n"
        "apart = ('evalsuite.faults', 'sparse_mla.forcing')\n"
        "found = [name for name in sys.modules if name.startswith(apart)]\n"
        "sys.exit(str(found) if found else 0)"
    )
    path = ":".join([str(ROOT), str(ROOT / "kernels"), str(ROOT / "tasks")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
