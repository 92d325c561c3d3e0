"""The suite `dsv3-mini-vllm` as a user runs it: four servers, one after the other, judged against
the committed baseline."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from live import processes

from evalsuite.judge import read_verdict
from evalsuite.launch import Launch
from evalsuite.pipeline import RunResult, run_and_judge
from evalsuite.storage import read_evidence, read_records, read_run
from evalsuite.suite import Overrides

ARMS = ("eager", "graph", "mtp1", "mtp5")
ITEMS = 48


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """The run of all four arms, its verdict and its reports."""
    place = tmp_path_factory.mktemp("runs") / "four"
    asked = Launch("dsv3-mini-vllm", Overrides(limit=ITEMS), None, place, "new")
    return run_and_judge(asked, baseline=None, judged=True)


@pytest.fixture(scope="module")
def folder(result: RunResult) -> Path:
    """The run's folder."""
    assert result.executed.failed == {}
    return result.executed.folder


@pytest.mark.parametrize("arm", ARMS)
def test_every_item_is_answered_with_ids_and_margins(folder: Path, arm: str) -> None:
    records = read_records(folder, arm)
    assert len({record.item_id for record in records}) == ITEMS
    for record in records:
        assert record.error is None and record.text is not None
        assert record.token_ids and record.output_tokens == len(record.token_ids)
        assert record.margins is not None and len(record.margins) == len(record.token_ids)
        assert min(record.margins) >= 0.0
        assert record.ttft_s is not None and record.ttft_s > 0.0


@pytest.mark.parametrize(("arm", "k"), [("eager", 0), ("graph", 0), ("mtp1", 1), ("mtp5", 5)])
def test_the_live_server_proves_its_mode(folder: Path, arm: str, k: int) -> None:
    evidence = read_evidence(folder, arm)
    assert evidence.engine_version is not None and evidence.engine_version.startswith("0.32.0")
    assert evidence.backend is not None and evidence.backend.endswith("_MLA")
    assert evidence.read_back == evidence.asked
    assert evidence.asked["enforce_eager"] is (arm == "eager")
    assert evidence.asked["num_speculative_tokens"] == k == evidence.draft_length
    assert evidence.preemptions == 0 and evidence.prefix_hits is not None
    assert evidence.routes is not None
    assert evidence.routes["target"] == "DeepseekV3ForCausalLM"
    assert evidence.routes.get("drafter") == ("DeepSeekMTPModel" if k else None)
    if k == 0:
        assert (evidence.drafts, evidence.accepted_per_position) == (0, [])
        return
    assert evidence.drafts and evidence.drafted_tokens
    assert evidence.accepted_per_position is not None
    assert len(evidence.accepted_per_position) == k
    counts = [evidence.drafts, *evidence.accepted_per_position]
    assert counts == sorted(counts, reverse=True)
    # The last step of an answer may have room for fewer drafts than k.
    assert 0.9 * k * evidence.drafts <= evidence.drafted_tokens <= k * evidence.drafts


def test_the_model_is_right_in_every_mode_and_its_drafts_hold(folder: Path) -> None:
    for arm in ARMS:
        outcomes = Counter(record.outcome for record in read_records(folder, arm))
        assert outcomes["correct"] >= 0.75 * ITEMS, (arm, outcomes)
    for arm in ("mtp1", "mtp5"):
        evidence = read_evidence(folder, arm)
        assert evidence.drafts and evidence.accepted_per_position
        assert evidence.accepted_per_position[0] >= 0.9 * evidence.drafts


def test_the_run_passes_against_the_committed_baseline(result: RunResult, folder: Path) -> None:
    judged = read_verdict(folder)
    found = judged.findings
    assert {f.message for f in found if f.status in ("fail", "missing")} == set()
    assert result.exit_code == 0
    skipped = {f.evidence for f in found if "declared by the suite" in f.message}
    assert skipped == {"steps_by_kind", "graph_replays", "eager_decode_steps"}
    assert read_run(folder).hardware["device"] == "cpu"
    accepted = {arm.arm: arm.baseline_accuracy for arm in judged.arms}
    assert set(accepted) == set(ARMS) and None not in accepted.values()


def test_no_process_is_left(folder: Path) -> None:
    assert [one for arm in ARMS for one in processes(folder / arm / "engine.log")] == []
