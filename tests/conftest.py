"""What several tests share: the task, loaded once, and the fake engine's suite."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
# Triton decides while it is first imported, by whichever test, whether it interprets.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from evalsuite.harness import HarnessTask, load_task
from evalsuite.suite import EngineConfig, Suite

FAKE = "fake_engine:open_engine"


def pytest_configure() -> None:
    """Let SIGINT interrupt: a shell that starts the tests in the background has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Give each test the same random numbers, whichever tests ran before it in its process."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def gsm_mini_task() -> HarnessTask:
    """The task `gsm_mini` with the prompts of all its items."""
    return load_task("gsm_mini")


@pytest.fixture
def fake_suite() -> Suite:
    """A quick suite of three arms on the fake engine."""
    return Suite(
        name="fake",
        engine=EngineConfig(kind=FAKE),
        task="gsm_mini",
        arms=("eager", "graph", "mtp2"),
        block_size=8,
    )
