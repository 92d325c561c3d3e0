"""A real language model on real GSM8K through real vLLM: real text with real faults.

SmolLM2-135M-Instruct solves next to nothing, and some of its answers are loops. Those are its own:
held against its own baseline they are no regression.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from live import Live, run, start, suite_of, verdict
from msgspec.structs import replace

from evalsuite.baseline import accept_baseline
from evalsuite.harness import HarnessTask, load_task
from evalsuite.judge import judge
from evalsuite.protocol import Chat
from evalsuite.storage import read_evidence, read_records
from evalsuite.suite import Suite

ITEMS = 128
ARMS = ("eager", "graph", "mtp3")
ARGS = ["--max-model-len", "2048", "--max-num-seqs", "64"]


def suite(model: str, *arms: str, **options: Any) -> Suite:
    """Eager, compiled, and n-gram speculation in the place of MTP."""
    given = {"args": ARGS, "speculative": {"method": "ngram", "prompt_lookup_max": 4}, **options}
    if "url" in options:
        del given["args"]
    made = suite_of(*arms, model=model, concurrency=64, **given)
    return replace(made, name="smollm2", task="gsm8k", shots=5, block_size=64)


@pytest.fixture(scope="module")
def task(gsm8k_dir: Path) -> HarnessTask:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVALSUITE_GSM8K_DIR", str(gsm8k_dir))
        return load_task("gsm8k", max_tokens=256)


@pytest.fixture(scope="module")
def folder(task: HarnessTask, smollm2: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "smollm2"
    done = run(suite(smollm2, *ARMS), task, place, items=ITEMS)
    assert done.failed == {}
    return place


@pytest.fixture(scope="module")
def server(smollm2: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    log = tmp_path_factory.mktemp("smollm2") / "engine.log"
    live = start(smollm2, log, *ARGS, "--enforce-eager")
    yield live
    live.stop()


@pytest.mark.parametrize("arm", ARMS)
def test_every_question_has_one_outcome_and_none_is_an_error(folder: Path, arm: str) -> None:
    records = read_records(folder, arm)
    outcomes = Counter(record.outcome for record in records)
    assert outcomes.total() == ITEMS and outcomes["error"] == 0
    # Answers end at the budget without an answer, at a stop, or in a loop.
    assert outcomes["wrong"] > 0.5 * ITEMS
    for record in records:
        assert record.finish_reason == "stop" or record.output_tokens == 256
        assert "Question:" not in (record.text or "")


def test_ngram_speculation_is_told_as_what_it_is(folder: Path) -> None:
    evidence = read_evidence(folder, "mtp3")
    assert evidence.asked["speculative_method"] == "ngram"
    assert evidence.read_back == evidence.asked
    assert evidence.drafts and evidence.accepted_per_position
    assert len(evidence.accepted_per_position) == 3


def test_its_own_loops_are_no_regression_against_its_own_baseline(
    folder: Path, task: HarnessTask, smollm2: str, server: Live, tmp_path: Path
) -> None:
    alone = verdict(folder)
    degenerate = sum(record.outcome == "degenerate" for record in read_records(folder, "eager"))
    assert degenerate > 0, "this test needs a model with loops of its own"
    # Without a baseline nobody knows that this model loops.
    assert alone.checks["degeneration"] == "fail"
    accept_baseline(folder, "its loops were looked at", force=True, root=tmp_path)
    again = tmp_path / "again"
    attached = suite(smollm2, "eager", url=server.url, log=str(server.process.log))
    run(attached, task, again, items=ITEMS)
    judged = judge(again, str(tmp_path / "smollm2" / "bfloat16.json"))
    found = {f.check: f.message for f in judged.findings if f.status in ("fail", "missing")}
    assert found == {}
    assert judged.verdict == "pass"


def test_chat_through_the_models_own_template(
    gsm8k_dir: Path, smollm2: str, server: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALSUITE_GSM8K_DIR", str(gsm8k_dir))
    chat = Chat(system="You solve problems. End with #### and the number.")
    task = load_task("gsm8k", max_tokens=256, shots=3, chat=chat)
    asked = replace(suite(smollm2, "eager", url=server.url), chat=chat, shots=3)
    assert run(asked, task, tmp_path / "chat", items=32).failed == {}
    records = read_records(tmp_path / "chat", "eager")
    assert {record.error for record in records} == {None}
    # The template adds its own tokens: the turns reached the model through it.
    assert all("<|im_" not in (record.text or "") for record in records)
    assert sum(record.finish_reason == "stop" for record in records) > 16
    assert all(record.token_ids and record.margins for record in records)
