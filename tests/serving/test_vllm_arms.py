"""The miniature in DeepSeek-V3's format through real vLLM, in four modes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from live import run, suite_of, verdict

from evalsuite.harness import HarnessTask, load_task
from evalsuite.storage import read_evidence, read_records, read_run

ARMS = ("eager", "graph", "mtp1", "mtp5")
ITEMS = 32


@pytest.fixture(scope="module")
def task() -> HarnessTask:
    return load_task("gsm_mini", max_tokens=192)


@pytest.fixture(scope="module")
def folder(task: HarnessTask, dsv3: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of all four arms, each on a server of its own."""
    place = tmp_path_factory.mktemp("runs") / "four"
    done = run(suite_of(*ARMS, model=dsv3), task, place, items=ITEMS)
    assert done.failed == {}
    return place


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


def test_the_verdict_is_about_the_answers_and_not_about_missing_evidence(folder: Path) -> None:
    found = verdict(folder).findings
    assert [f.message for f in found if f.status == "missing"] == []
    assert [f.message for f in found if f.check == "route" and f.status == "fail"] == []
    skipped = {f.evidence for f in found if "declared by the suite" in f.message}
    assert skipped == {"steps_by_kind", "graph_replays", "eager_decode_steps"}
    assert read_run(folder).hardware["device"] == "cpu"


def test_the_trained_miniature_is_right_in_every_mode(folder: Path, trained: bool) -> None:
    if not trained:
        pytest.skip("the miniature has random weights here")
    for arm in ARMS:
        outcomes = Counter(record.outcome for record in read_records(folder, arm))
        assert outcomes["correct"] >= 0.75 * ITEMS, (arm, outcomes)
    for arm in ("mtp1", "mtp5"):
        evidence = read_evidence(folder, arm)
        assert evidence.drafts and evidence.accepted_per_position
        assert evidence.accepted_per_position[0] >= 0.5 * evidence.drafts
    assert verdict(folder).verdict == "pass"


def test_servers_in_another_mode_than_asked_are_caught(
    task: HarnessTask, dsv3: str, tmp_path: Path
) -> None:
    suite = suite_of(
        "graph",
        "mtp2",
        model=dsv3,
        arm_args={
            "graph": "--enforce-eager",
            "mtp2": '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\'',
        },
    )
    assert run(suite, task, tmp_path / "run", items=8).failed == {}
    found = [f.message for f in verdict(tmp_path / "run").findings if f.status == "fail"]
    assert "graph runs with enforce_eager = True, not False" in found
    assert "mtp2 runs with num_speculative_tokens = 1, not 2" in found
    assert "mtp2 drafted 1 tokens a step, not 2" in found
