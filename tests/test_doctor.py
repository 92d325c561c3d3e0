"""Doctor: a GPU that torch cannot use is told, loudly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fake_engine import FakeEngine

from evalsuite import doctor
from evalsuite.arms import parse_arm


@pytest.fixture
def no_torch_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch find no GPU, and no variable hide one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for variables, _ in doctor.GPU_MARKS.values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)


def mark(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let `path` stand for what the system shows of an NVIDIA GPU."""
    marks = {"an NVIDIA GPU": (("CUDA_VISIBLE_DEVICES",), (str(path),))}
    monkeypatch.setattr(doctor, "GPU_MARKS", marks)


@pytest.mark.usefixtures("no_torch_gpu")
def test_a_gpu_that_torch_does_not_see_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark(monkeypatch, tmp_path)
    problem = doctor.find_device().problem
    assert problem is not None
    assert "an NVIDIA GPU is in this machine" in problem
    assert torch.__version__ in problem


@pytest.mark.usefixtures("no_torch_gpu")
def test_a_machine_without_gpu_has_no_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark(monkeypatch, tmp_path / "none")
    device = doctor.find_device()
    assert (device.kind, device.problem) == ("cpu", None)


@pytest.mark.usefixtures("no_torch_gpu")
def test_a_gpu_hidden_on_purpose_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark(monkeypatch, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert doctor.find_device().problem is None


def test_versions_of_missing_libraries_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("torch", "no-such-library"))
    assert doctor.library_versions()["no-such-library"] is None
    assert doctor.library_versions()["torch"]


@pytest.mark.parametrize("option", ["refuse_arm", "crash_in_warm_up"])
def test_an_arm_that_cannot_run_is_told_and_makes_the_exit_code_2(option: str) -> None:
    found = doctor.offer(FakeEngine({option: "graph"}), parse_arm("graph"))
    assert found.problem
    device = doctor.Device("cpu", "test", 1, None, None)
    assert doctor.Examination(device, {}, "s", [found], [found.problem]).exit_code == 2
    assert doctor.offer(FakeEngine({option: "graph"}), parse_arm("eager")).problem is None
