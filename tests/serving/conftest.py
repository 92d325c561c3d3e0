"""Real vLLM on the CPU, in `.venv-vllm`; these tests are left out unless asked for (-m vllm)."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))

import torch
from live import ENVIRONMENT, PYTHON, WITHOUT_ROTARY_KERNEL, Live, start
from tokenizers import Tokenizer

from evalsuite.paths import EMBEDDED_MODEL, PACKAGE, ROOT
from evalsuite.train.dsv3 import FILE, architecture
from evalsuite.train.export import export_folder
from evalsuite.train.parameters import initial_parameters

TRAINED = PACKAGE / "models" / "dsv3_mini"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(3600))
            if not PYTHON.exists():
                item.add_marker(pytest.mark.skip(reason=".venv-vllm is missing: make test-vllm"))


@pytest.fixture(scope="session")
def trained() -> bool:
    """Whether the trained miniature is there; its tests of accuracy need it."""
    return (TRAINED / "model.safetensors").exists()


@pytest.fixture(scope="session")
def dsv3(trained: bool, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The miniature in DeepSeek-V3's format; with random weights where it was not trained."""
    if trained:
        return str(TRAINED)
    folder = tmp_path_factory.mktemp("model") / "dsv3_random"
    raw: dict[str, Any] = json.loads(FILE.read_text())
    built = architecture(raw, str(FILE))
    params = initial_parameters(built.specs, 3, torch.device("cpu"))
    tokenizer = Tokenizer.from_file(str(EMBEDDED_MODEL / "tokenizer.json"))
    export_folder(params, built, raw, tokenizer, folder)
    return str(folder)


@pytest.fixture(scope="session")
def eager_server(dsv3: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One server in eager mode without speculation, for all tests that only ask one."""
    log = tmp_path_factory.mktemp("server") / "engine.log"
    server = start(dsv3, log, "--enforce-eager", *shlex.split(WITHOUT_ROTARY_KERNEL))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> str:
    """SmolLM2-135M-Instruct as a folder that vLLM serves; EVALSUITE_SMOLLM2 names a ready one."""
    ready = os.environ.get("EVALSUITE_SMOLLM2")
    if ready:
        return ready
    folder = tmp_path_factory.mktemp("model") / "smollm2"
    script = Path(__file__).parent / "convert_smollm2.py"
    done = subprocess.run(
        [str(PYTHON), str(script), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ENVIRONMENT},
    )
    if done.returncode:
        pytest.skip(f"SmolLM2 could not be made: {done.stderr.strip().splitlines()[-1]}")
    return str(folder)


@pytest.fixture(scope="session")
def gsm8k_dir() -> Path:
    """The folder with real GSM8K; without it the tests that need it skip."""
    named = os.environ.get("EVALSUITE_GSM8K_DIR")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "gsm8k"
    if not (folder / "test.jsonl").exists():
        pytest.skip(f"no GSM8K in {folder}; EVALSUITE_GSM8K_DIR names it")
    return folder
