"""A real language model on real GSM8K through real vLLM: real text with real faults.

SmolLM2-135M-Instruct solves next to nothing, and some of its answers are loops. Those are its own:
held against its own baseline they are no regression.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from live import Live, attached
from msgspec.structs import replace
from served import run, verdict

from evalsuite.baseline import accept_baseline
from evalsuite.harness import HarnessTask, load_task
from evalsuite.judge import judge
from evalsuite.protocol import Chat
from evalsuite.storage import read_evidence, read_records
from evalsuite.suite import Suite

ITEMS = 128
# Each question has shots of its own, so that a server computes every prompt whole: two of them take
# less than half the time of five. With one the model no longer knows where an answer ends.
SHOTS = 2
BUDGET = 128
# Eager, compiled, and speculation by n-grams of the prompt in the place of MTP.
ARMS = ("eager", "graph", "eager-mtp3")


def of_smollm2(suite: Suite, **changes: Any) -> Suite:
    return replace(suite, name="smollm2", task="gsm8k", shots=SHOTS, block_size=64, **changes)


@pytest.fixture(scope="module")
def task(gsm8k_dir: Path) -> HarnessTask:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALSUITE_GSM8K_DIR", str(gsm8k_dir))
        return load_task("gsm8k", shots=SHOTS, max_tokens=BUDGET)


@pytest.fixture(scope="module")
def suite(smollm2_eager: Live, smollm2_graph: Live, smollm2_ngram: Live) -> Suite:
    """Three servers for three arms, which take turns."""
    servers = dict(zip(ARMS, (smollm2_eager, smollm2_graph, smollm2_ngram), strict=True))
    made = attached(
        *ARMS,
        to=smollm2_eager,
        concurrency=64,
        urls={arm: server.url for arm, server in servers.items()},
        logs={arm: str(server.log) for arm, server in servers.items()},
        speculative={"method": "ngram"},
    )
    options = {k: v for k, v in made.engine.options.items() if k not in ("url", "log")}
    return of_smollm2(made, engine=replace(made.engine, options=options))


@pytest.fixture(scope="module")
def folder(task: HarnessTask, suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "smollm2"
    assert run(suite, task, place, items=ITEMS).failed == {}
    return place


@pytest.mark.parametrize("arm", ARMS)
def test_every_question_has_one_outcome_and_none_is_an_error(folder: Path, arm: str) -> None:
    records = read_records(folder, arm)
    outcomes = Counter(record.outcome for record in records)
    assert outcomes.total() == ITEMS and outcomes["error"] == 0
    # Answers end at the budget without an answer, at a stop, or in a loop.
    assert outcomes["wrong"] > 0.5 * ITEMS
    for record in records:
        assert record.finish_reason == "stop" or record.output_tokens == BUDGET
        assert "Question:" not in (record.text or "")


@pytest.mark.parametrize("arm", ARMS)
def test_each_server_proves_its_mode(folder: Path, arm: str) -> None:
    evidence = read_evidence(folder, arm)
    assert evidence.read_back == evidence.asked
    assert evidence.asked["enforce_eager"] is (arm != "graph")
    assert evidence.routes is not None and evidence.routes["target"] == "LlamaForCausalLM"


def test_ngram_speculation_is_told_as_what_it_is(folder: Path) -> None:
    evidence = read_evidence(folder, "eager-mtp3")
    assert evidence.asked["speculative_method"] == "ngram"
    assert evidence.drafts and evidence.accepted_per_position
    assert len(evidence.accepted_per_position) == 3
    assert 0 < evidence.accepted_per_position[0] < evidence.drafts


def test_its_own_loops_are_no_regression_against_its_own_baseline(
    folder: Path, task: HarnessTask, suite: Suite, tmp_path: Path
) -> None:
    alone = verdict(folder)
    degenerate = sum(record.outcome == "degenerate" for record in read_records(folder, "eager"))
    assert degenerate > 0, "this test needs a model with loops of its own"
    # Without a baseline nobody knows that this model loops.
    assert alone.checks["degeneration"] == "fail"
    accept_baseline(folder, "its loops were looked at", force=True, root=tmp_path)
    again = tmp_path / "again"
    run(replace(suite, arms=("eager",)), task, again, items=ITEMS // 2)
    judged = judge(again, str(tmp_path / "smollm2" / "bfloat16.json"))
    found = {f.check: f.message for f in judged.findings if f.status in ("fail", "missing")}
    assert found == {}
    assert judged.verdict == "pass"


def test_chat_through_the_models_own_template(
    gsm8k_dir: Path, smollm2_eager: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALSUITE_GSM8K_DIR", str(gsm8k_dir))
    chat = Chat(system="You solve problems. End with #### and the number.")
    task = load_task("gsm8k", max_tokens=128, shots=3, chat=chat)
    asked = replace(of_smollm2(attached("eager", to=smollm2_eager)), chat=chat, shots=3)
    assert run(asked, task, tmp_path / "chat", items=16).failed == {}
    records = read_records(tmp_path / "chat", "eager")
    assert {record.error for record in records} == {None}
    # The template adds its own tokens: the turns reached the model through it.
    assert all("<|im_" not in (record.text or "") for record in records)
    assert sum(record.finish_reason == "stop" for record in records) > 4
    assert all(record.token_ids and record.margins for record in records)
