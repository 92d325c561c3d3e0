"""Faults injected into real vLLM by a plug-in. The gate sees the server from outside, as always."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from gate_faults import DRAFTER_INPUT, NO_DRAFTS, VERIFY_ROWS
from live import DSV3, Live, attached, started
from served import run

from evalsuite.baseline import accept_baseline
from evalsuite.compare import compare_runs
from evalsuite.errors import EXIT_FAIL
from evalsuite.harness import HarnessTask, load_task
from evalsuite.judge import judge

ARM = "eager-mtp5"
ITEMS = 24


@pytest.fixture(scope="module")
def task() -> HarnessTask:
    return load_task("gsm_mini", max_tokens=160)


@pytest.fixture(scope="module")
def accepted(
    task: HarnessTask, faulty_server: Live, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The baseline of the server while nothing is ordered of it."""
    place = tmp_path_factory.mktemp("healthy")
    assert run(attached(ARM, to=faulty_server), task, place / "run", items=ITEMS).failed == {}
    # Of one arm alone nobody has shown that MTP changes no answer; that is not asked here.
    accept_baseline(place / "run", "nothing is ordered", force=True, root=place)
    return place / "vllm-test" / "bfloat16.json"


def order(server: Live, fault: str) -> None:
    Path(server.environment["GATE_FAULT_FILE"]).write_text(fault)


def failing(task: HarnessTask, server: Live, fault: str, folder: Path, accepted: Path) -> set[str]:
    """Run with `fault` on; return the checks that fail against the healthy baseline."""
    order(server, fault)
    try:
        assert run(attached(ARM, to=server), task, folder, items=ITEMS).failed == {}
    finally:
        order(server, "")
    found = judge(folder, str(accepted)).findings
    return {f.check for f in found if f.status in ("fail", "missing")}


def test_without_a_fault_the_gate_is_green(
    task: HarnessTask, faulty_server: Live, accepted: Path, tmp_path: Path
) -> None:
    assert failing(task, faulty_server, "", tmp_path / "run", accepted) == set()


def test_another_hidden_input_of_the_drafter_costs_acceptance_and_nothing_else(
    task: HarnessTask, faulty_server: Live, accepted: Path, tmp_path: Path
) -> None:
    found = failing(task, faulty_server, DRAFTER_INPUT, tmp_path / "run", accepted)
    assert "acceptance" in found
    assert not found & {"accuracy", "degeneration", "route"}


def test_wrong_verification_rows_of_one_width_reach_the_answers(
    task: HarnessTask, faulty_server: Live, accepted: Path, tmp_path: Path
) -> None:
    found = failing(task, faulty_server, VERIFY_ROWS, tmp_path / "run", accepted)
    assert {"accuracy", "acceptance"} <= found


def test_mtp_that_is_off_without_a_word_is_missed_where_it_should_draft(
    task: HarnessTask, faulty_server: Live, accepted: Path, tmp_path: Path
) -> None:
    found = failing(task, faulty_server, NO_DRAFTS, tmp_path / "run", accepted)
    assert "acceptance" in found
    # The configuration that is read back still says five drafts, and the answers are right.
    assert not found & {"accuracy", "degeneration"}


@pytest.mark.slow
def test_a_real_fault_of_a_release_is_caught(tmp_path: Path) -> None:
    """The rotary kernel of vLLM 0.32 on CPUs against the same model computed without it.

    It turns queries of three dimensions wrongly where nothing is compiled. A model that scales its
    rope, as the miniature does by the factor 1, runs another one.
    """
    plain = tmp_path / "plain"
    shutil.copytree(DSV3, plain)
    config = json.loads((plain / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps({**config, "rope_scaling": None}))
    without = '--compilation-config \'{"custom_ops": ["all", "-rotary_embedding"]}\''
    healthy = started("eager", model=str(plain), arm_args={"eager": without})
    task = load_task("gsm_mini", max_tokens=192)
    run(healthy, task, tmp_path / "healthy", items=48)
    run(started("eager", model=str(plain)), task, tmp_path / "faulty", items=48)
    compared = compare_runs(tmp_path / "healthy", tmp_path / "faulty")
    assert compared.exit_code == EXIT_FAIL
    failing = {f.check for f in compared.verdict.findings if f.status == "fail"}
    assert {"accuracy", "degeneration"} <= failing
