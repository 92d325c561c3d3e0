"""Servers of real vLLM that run in another mode than asked, and ways of asking one."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import Live, attached, endpoint
from msgspec.structs import replace
from served import run, verdict

from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask
from evalsuite.storage import read_evidence, read_records
from evalsuite.suite import Suite

ITEMS = 16


def failures(suite: Suite, task: HarnessTask, folder: Path) -> list[str]:
    """Run `suite`; return what the gate has against it."""
    assert run(suite, task, folder, items=ITEMS).failed == {}
    return [f.message for f in verdict(folder).findings if f.status == "fail"]


def test_one_eager_server_for_three_arms_is_caught(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    suite = attached("eager", "graph", "mtp1", to=eager_server)
    found = failures(suite, short_task, tmp_path / "run")
    assert "graph runs with enforce_eager = True, not False" in found
    assert "mtp1 runs with enforce_eager = True, not False" in found
    assert "mtp1 runs with num_speculative_tokens = 0, not 1" in found
    assert "mtp1 drafted 0 tokens a step, not 1" in found
    assert "mtp1 made no drafts: speculation never ran" in found
    assert not any(message.startswith("eager runs with") for message in found)
    # Attached, the log of the server tells what it would have told had it been started here.
    evidence = read_evidence(tmp_path / "run", "eager")
    assert evidence.backend is not None and evidence.read_back == evidence.asked


def test_another_number_of_drafts_than_asked_is_caught(
    short_task: HarnessTask, faulty_server: Live, tmp_path: Path
) -> None:
    suite = attached("eager", "eager-mtp2", to=faulty_server)
    found = failures(suite, short_task, tmp_path / "run")
    assert "eager-mtp2 runs with num_speculative_tokens = 5, not 2" in found
    assert "eager-mtp2 drafted 5 tokens a step, not 2" in found
    assert "eager runs with num_speculative_tokens = 5, not 0" in found
    assert any(message.startswith("eager drafted although it must not") for message in found)


def test_any_client_of_openai_gets_the_same_answers(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    run(endpoint(eager_server), short_task, tmp_path / "openai", items=ITEMS)
    ids = attached("eager", to=eager_server, prompt_ids=True, stream=False)
    run(ids, short_task, tmp_path / "vllm", items=ITEMS)
    first = {r.item_id: r for r in read_records(tmp_path / "openai", "eager")}
    second = {r.item_id: r for r in read_records(tmp_path / "vllm", "eager")}
    assert {r.error for r in (*first.values(), *second.values())} == {None}
    # Batches differ from run to run, and bfloat16 with them.
    same = sum(first[key].text == second[key].text for key in first)
    assert same >= 0.8 * ITEMS
    assert {r.prompt_tokens for r in first.values()} == {r.prompt_tokens for r in second.values()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"served_model": "no/such"}, r"no model 'no/such' at .*; it offers: /"),
        ({"url": "http://127.0.0.1:9"}, r"nothing answers at http://127\.0\.0\.1:9"),
        ({"api_key_env": "GATE_OLD_KEY"}, r"api_key_env: .* refuses the API key \(HTTP 401\)"),
    ],
)
def test_a_wrong_model_port_or_key_is_refused_before_anything_is_written(
    short_task: HarnessTask,
    eager_server: Live,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str],
    message: str,
) -> None:
    monkeypatch.setenv("GATE_OLD_KEY", "a-key-of-last-year-0815")
    with pytest.raises(UsageError, match=message) as caught:
        run(endpoint(eager_server, **changes), short_task, tmp_path / "run", items=8)
    assert "0815" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_the_key_is_in_no_file_of_a_run_and_not_in_the_servers_log(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run(attached("eager", to=eager_server), short_task, folder, items=8)
    assert eager_server.key is not None
    for path in (eager_server.log, *folder.rglob("*")):
        if path.is_file():
            assert eager_server.key not in path.read_text(errors="replace"), path


def test_the_engines_differ_in_nothing_but_what_they_can_tell(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    suite = endpoint(eager_server)
    undeclared = replace(suite, unavailable=())
    run(undeclared, short_task, tmp_path / "run", items=8)
    missing = {f.evidence for f in verdict(tmp_path / "run").findings if f.status == "missing"}
    assert {"graph_replays", "eager_decode_steps", "routes"} <= missing
