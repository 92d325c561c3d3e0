"""Real vLLM on the CPU, in `.venv-vllm`; these tests are left out unless asked for (-m vllm)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
sys.path.insert(0, str(Path(__file__).parent / "plugin"))

from fleet import KEY, Fleet, planned
from live import KEY_VARIABLE, PYTHON, Live

from evalsuite.harness import HarnessTask, load_task
from evalsuite.paths import ROOT

HERE = Path(__file__).parent
SERVERS = ("eager_server", "faulty_server", "smollm2_eager", "smollm2_graph", "smollm2_ngram")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.timeout(3600))
            if not PYTHON.exists():
                item.add_marker(pytest.mark.skip(reason=".venv-vllm is missing: make test-vllm"))


@pytest.fixture(scope="session", autouse=True)
def fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """The servers that the tests of this session ask; they start while the first tests run.

    EVALSUITE_SMOLLM2 names a ready folder of SmolLM2.
    """
    named = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    if gsm8k_folder() is None:
        named -= {name for name in SERVERS if name.startswith("smollm2")}
    ready = os.environ.get("EVALSUITE_SMOLLM2")
    servers = planned(tmp_path_factory.mktemp("servers"), named, ready)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_VARIABLE, KEY)
        yield servers
    servers.close()


@pytest.fixture(scope="session")
def eager_server(fleet: Fleet) -> Live:
    """The miniature, eager, without speculation; it wants a key and bounds its queue."""
    return fleet["eager_server"]


@pytest.fixture(scope="session")
def faulty_server(fleet: Fleet) -> Live:
    """The miniature, eager, with five drafts, and with the plug-in that breaks it by order."""
    return fleet["faulty_server"]


@pytest.fixture(scope="session")
def smollm2_eager(fleet: Fleet, gsm8k_dir: Path) -> Live:
    """SmolLM2, eager."""
    return fleet["smollm2_eager"]


@pytest.fixture(scope="session")
def smollm2_graph(fleet: Fleet, gsm8k_dir: Path) -> Live:
    """SmolLM2, compiled."""
    return fleet["smollm2_graph"]


@pytest.fixture(scope="session")
def smollm2_ngram(fleet: Fleet, gsm8k_dir: Path) -> Live:
    """SmolLM2, eager, with three drafts taken from the prompt."""
    return fleet["smollm2_ngram"]


def gsm8k_folder() -> Path | None:
    """Return the folder with real GSM8K, None where there is none."""
    named = os.environ.get("EVALSUITE_GSM8K_DIR")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "gsm8k"
    return folder if (folder / "test.jsonl").exists() else None


@pytest.fixture(scope="session")
def gsm8k_dir() -> Path:
    """The folder with real GSM8K; without it the tests that need it skip."""
    folder = gsm8k_folder()
    if folder is None:
        pytest.skip("no GSM8K in ../shared/data/gsm8k; EVALSUITE_GSM8K_DIR names it")
    return folder


@pytest.fixture(scope="session")
def short_task() -> HarnessTask:
    """The word problems with answers cut short, for tests that ask how and not whether."""
    return load_task("gsm_mini", max_tokens=64)
