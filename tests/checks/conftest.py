"""An accepted baseline of three runs, and a healthy run to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_factory import Factory

from evalsuite.baseline import accept_baseline


class Bench:
    """A healthy run and its baseline, copied afresh for each test."""

    def __init__(self, source: Path, folder: Path, factory: Factory) -> None:
        self.factory = factory
        self.run = folder / factory.dtype
        shutil.copytree(source / "run", self.run)
        self.baseline = str(source / "baselines" / factory.suite / f"{factory.dtype}.json")


def prepared(root: Path, factory: Factory) -> Path:
    for seed in range(3):
        accept_baseline(
            factory.make(root / f"accepted{seed}", seed), "first", root=root / "baselines"
        )
    factory.make(root / "run", seed=9)
    return root


@pytest.fixture(scope="session")
def exact_source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Factory]:
    factory = Factory.of(120)
    return prepared(tmp_path_factory.mktemp("exact"), factory), factory


@pytest.fixture(scope="session")
def noisy_source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Factory]:
    factory = Factory.of(300, device="cuda").noisy(0.03)
    return prepared(tmp_path_factory.mktemp("noisy"), factory), factory


@pytest.fixture
def bench(exact_source: tuple[Path, Factory], tmp_path: Path) -> Bench:
    """Seven arms in float32 on a CPU, 120 items, all arms alike."""
    source, factory = exact_source
    return Bench(source, tmp_path, factory)


@pytest.fixture
def noisy(noisy_source: tuple[Path, Factory], tmp_path: Path) -> Bench:
    """Seven arms in bfloat16 on a GPU, 300 items, arms that flip."""
    source, factory = noisy_source
    return Bench(source, tmp_path, factory)
