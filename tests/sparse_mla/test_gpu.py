"""The numeric suite of the attention kernels, where there is a Hopper GPU."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="needs a Hopper GPU",
    ),
]


@pytest.fixture
def numerics(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program benchmarks/kernel_numerics.py as a module."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("kernel_numerics")


@pytest.mark.parametrize("kernel", ["GLUON", "FEW_HEADS", "WIDE", "NARROW", "NARROW_FP8"])
def test_every_property_holds(numerics: ModuleType, kernel: str) -> None:
    config = getattr(importlib.import_module("sparse_mla.configs"), kernel)
    wrong = {name: check(config) for name, check in numerics.CHECKS.items()}
    assert {name: found for name, found in wrong.items() if found} == {}
