"""Servers that a run starts: evidence, flags, faults at start and in between, nothing left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from served import (
    COMMAND,
    outcomes,
    route_messages,
    run,
    servers_left,
    suite_of,
    verdict,
)

from evalsuite.engines.opening import open_engine
from evalsuite.errors import RunIncomplete, UsageError
from evalsuite.harness import HarnessTask
from evalsuite.storage import read_evidence, read_records, read_run


@pytest.fixture(autouse=True)
def _nothing_left() -> Any:
    yield
    assert servers_left() == []


def test_arms_are_started_one_after_the_other_and_tell_what_they_did(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    done = run(suite_of("eager", "graph", "mtp2"), gsm_mini_task, folder)
    assert done.failed == {}
    for arm in ("eager", "graph", "mtp2"):
        assert Counter(outcomes(folder, arm)) == {"correct": 40}
    eager, graph, mtp = (read_evidence(folder, arm) for arm in ("eager", "graph", "mtp2"))
    assert (eager.graph_replays, graph.eager_decode_steps, mtp.eager_decode_steps) == (0, 0, 0)
    assert eager.eager_decode_steps and graph.graph_replays and mtp.graph_replays
    assert (eager.draft_length, eager.drafts, mtp.draft_length) == (0, 0, 2)
    assert mtp.drafts and mtp.drafted_tokens == 2 * mtp.drafts
    assert mtp.accepted_per_position is not None
    assert [count / mtp.drafts for count in mtp.accepted_per_position] == pytest.approx(
        [0.8, 0.7], abs=0.02
    )
    assert mtp.routes == {
        "attention": "FLASH_ATTN_MLA_SPARSE",
        "target": "Glm5NextForCausalLM",
        "drafter": "Glm5NextMTPModel",
    }
    assert (mtp.engine_version, mtp.backend) == ("0.0.1", "FLASH_ATTN_MLA_SPARSE")
    assert mtp.asked == mtp.read_back
    assert mtp.read_back is not None and mtp.read_back["graph_mode"] == "FULL_AND_PIECEWISE"
    record = read_records(folder, "mtp2")[0]
    assert record.token_ids and record.margins and len(record.margins) == len(record.token_ids)
    assert record.ttft_s is not None and record.margins[0] == pytest.approx(3.0)
    result = verdict(folder)
    assert result.verdict == "pass", [f.message for f in result.findings if f.status != "pass"]
    skipped = [f.message for f in result.findings if f.status == "skipped" and f.check == "route"]
    assert any("steps_by_kind (declared by the suite)" in message for message in skipped)


def test_the_log_holds_the_command_the_output_and_the_counts(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    suite = suite_of("mtp5", args=["--max-num-seqs", "8"], arm_args={"mtp5": "--seed '3'"})
    run(suite, gsm_mini_task, folder)
    log = (folder / "mtp5" / "engine.log").read_text()
    first = log.splitlines()[0]
    assert first.startswith("$ ") and first.endswith("--max-num-seqs 8 --seed 3")
    assert '\'{"method": "mtp", "num_speculative_tokens": 5}\'' in first
    assert '\'{"cudagraph_mode": "FULL_AND_PIECEWISE"}\'' in first
    assert "Resolved architecture: Glm5NextMTPModel" in log
    assert "client: 48 requests, 0 retries, 0 failures" in log


@pytest.mark.parametrize(
    ("arm", "lie", "told"),
    [
        ("graph", {"enforce_eager": True}, "graph runs with enforce_eager = True, not False"),
        ("graph", {"enforce_eager": True}, "graph replayed no graph"),
        ("graph", {"mode": "NONE"}, "graph runs with graph_mode = 'NONE'"),
        ("eager", {"enforce_eager": False}, "eager runs with enforce_eager = False, not True"),
        ("mtp3", {"k": 2}, "mtp3 drafted 2 tokens a step, not 3"),
        ("mtp3", {"k": 0}, "mtp3 runs with num_speculative_tokens = 0, not 3"),
        ("eager", {"k": 1}, "eager drafted 1 tokens a step, not 0"),
    ],
)
def test_a_server_in_another_mode_than_asked_is_caught(
    gsm_mini_task: HarnessTask, tmp_path: Path, arm: str, lie: dict[str, Any], told: str
) -> None:
    folder = tmp_path / "run"
    run(suite_of(arm, env={"LOCAL_LIE": json.dumps(lie)}), gsm_mini_task, folder, items=20)
    assert any(told in message for message in route_messages(folder)), route_messages(folder)
    assert verdict(folder).verdict == "fail"


def test_speculation_that_is_off_fails_acceptance_too(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run(suite_of("mtp3", env={"LOCAL_LIE": '{"k": 0}'}), gsm_mini_task, folder, items=20)
    found = [f.message for f in verdict(folder).findings if f.check == "acceptance"]
    assert found == ["mtp3 made no drafts: speculation never ran"]


def test_another_backend_than_expected_is_caught(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    suite = suite_of(
        "graph",
        expect={"attention_backend": "FLASH_ATTN_MLA_SPARSE"},
        env={"LOCAL_LIE": '{"backend": "FLASHMLA_SPARSE"}'},
    )
    run(suite, gsm_mini_task, folder, items=20)
    expected = "graph runs with attention_backend = 'FLASHMLA_SPARSE', not 'FLASH_ATTN_MLA_SPARSE'"
    assert expected in route_messages(folder)


def test_a_server_that_dies_while_starting_fails_its_arm_with_its_last_lines(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    done = run(suite_of("eager", env={"LOCAL_DIES": "no room"}), gsm_mini_task, folder)
    assert "ended with code 9 while starting" in done.failed["eager"]
    assert "out of memory; no room" in done.failed["eager"]
    assert "out of memory; no room" in (folder / "eager" / "engine.log").read_text()
    assert verdict(folder).verdict == "incomplete"


def test_a_server_that_never_comes_up_is_ended(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    suite = suite_of("eager", env={"LOCAL_START_S": "100"}, start_timeout_s=1.5)
    done = run(suite, gsm_mini_task, tmp_path / "run")
    assert "was not ready after 1.5 s" in done.failed["eager"]


def test_killed_in_the_middle_it_ends_incomplete_and_resumes_without_asking_twice(
    gsm_mini_task: HarnessTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv("LOCAL_ASKED", str(asked))
    monkeypatch.setenv("LOCAL_DELAY_S", "0.02")
    suite, folder = suite_of("graph"), tmp_path / "run"
    killer = threading.Thread(target=_when_half_done, args=(asked, signal.SIGKILL))
    killer.start()
    done = run(suite, gsm_mini_task, folder, items=80)
    killer.join()
    assert "was ended by signal 9" in done.failed["graph"]
    assert "last lines" in done.failed["graph"]
    first = read_records(folder, "graph")
    assert 0 < len(first) < 80
    assert {record.outcome for record in first} == {"correct"}
    assert verdict(folder).verdict == "incomplete"
    monkeypatch.setenv("LOCAL_DELAY_S", "0")
    known = {record.item_id for record in first}
    answered_before = asked.read_text().count("\n")
    again = run(suite, gsm_mini_task, folder, items=80, mode="resume")
    assert again.failed == {}
    records = read_records(folder, "graph")
    assert len(records) == len({record.item_id for record in records}) == 80
    # Only what was not saved before is asked again, and the warm-up.
    fresh = asked.read_text().count("\n") - answered_before
    assert fresh == 80 - len(known) + suite_warm_up(suite)
    assert Counter(outcomes(folder, "graph")) == {"correct": 80}
    evidence = read_evidence(folder, "graph")
    assert evidence.graph_replays and verdict(folder).verdict == "pass"


def suite_warm_up(suite: Any) -> int:
    return int(suite.engine.options.get("warm_up", 8))


def _when_half_done(asked: Path, number: int, count: int = 30) -> None:
    for _ in range(2000):
        if asked.exists() and asked.read_text().count("\n") > count:
            for process in psutil.Process().children(recursive=True):
                words = process.cmdline() if process.is_running() else []
                if words[1:2] == [COMMAND[1]]:
                    os.kill(process.pid, number)
            return
        time.sleep(0.01)


def test_stopped_for_longer_than_the_limit_it_is_noticed_and_ended(
    gsm_mini_task: HarnessTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv("LOCAL_ASKED", str(asked))
    monkeypatch.setenv("LOCAL_DELAY_S", "0.02")
    suite, folder = suite_of("graph", stall_s=2.0), tmp_path / "run"
    stopper = threading.Thread(target=_when_half_done, args=(asked, signal.SIGSTOP))
    stopper.start()
    begun = time.monotonic()
    done = run(suite, gsm_mini_task, folder, items=80)
    stopper.join()
    assert "nothing came from the server for 2 s" in done.failed["graph"]
    assert time.monotonic() - begun < 60
    assert {record.outcome for record in read_records(folder, "graph")} == {"correct"}
    monkeypatch.setenv("LOCAL_DELAY_S", "0")
    assert run(suite, gsm_mini_task, folder, items=80, mode="resume").failed == {}
    assert Counter(outcomes(folder, "graph")) == {"correct": 80}


def test_children_end_with_the_server_even_those_that_left_its_group(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    children = tmp_path / "children"
    suite = suite_of("eager", env={"LOCAL_CHILDREN": str(children)})
    run(suite, gsm_mini_task, tmp_path / "run", items=8)
    _all_gone(children)


def _all_gone(children: Path) -> None:
    numbers = [int(word) for word in children.read_text().split()]
    assert len(numbers) == 3
    until = time.monotonic() + 15.0
    while left := [pid for pid in numbers if psutil.pid_exists(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


CRASH = """
import os, sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from served import suite_of
from evalsuite.engines.opening import open_engine
from evalsuite.arms import parse_arm
suite = suite_of("eager", env={{"LOCAL_CHILDREN": {children!r}}})
engine = open_engine(suite.engine_config())
engine.keep_logs(Path({logs!r}))
engine.start(parse_arm("eager"))
print("started", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_whatever_ends_us_ends_the_server(tmp_path: Path, number: int) -> None:
    children = tmp_path / "children"
    root = Path(__file__).parents[2]
    path = [str(Path(__file__).parent), str(root), str(root / "tasks")]
    code = CRASH.format(path=path, children=str(children), logs=str(tmp_path / "logs"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"started\n"
    process.send_signal(number)
    process.wait(20)
    _all_gone(children)


def test_an_interrupt_while_asking_leaves_a_run_that_resumes(
    gsm_mini_task: HarnessTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked"
    monkeypatch.setenv("LOCAL_ASKED", str(asked))
    monkeypatch.setenv("LOCAL_DELAY_S", "0.02")
    suite, folder = suite_of("graph"), tmp_path / "run"

    def interrupt() -> None:
        while not (asked.exists() and asked.read_text().count("\n") > 30):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(RunIncomplete, match="--resume"):
        run(suite, gsm_mini_task, folder, items=80)
    assert servers_left() == []
    monkeypatch.setenv("LOCAL_DELAY_S", "0")
    run(suite, gsm_mini_task, folder, items=80, mode="resume")
    assert Counter(outcomes(folder, "graph")) == {"correct": 80}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": ["nosuch-program"]}, "nosuch-program: .*no such program"),
        ({"cwd": "/nosuch"}, "cwd: no such folder"),
        ({"tensor_parallel": 0}, "tensor_parallel: at least 1"),
        ({"nosuch": 1}, "unknown field `nosuch`"),
        ({"url": "localhost:8000"}, "must begin with http"),
        ({"arm_args": {"eager": "'"}}, "arm_args.eager: No closing quotation"),
    ],
)
def test_bad_options_are_named(
    gsm_mini_task: HarnessTask, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        run(suite_of("eager", **changes), gsm_mini_task, tmp_path / "run", items=8)


def test_a_model_or_a_server_is_needed() -> None:
    with pytest.raises(UsageError, match="names no model"):
        open_engine(suite_of("eager", model=None).engine_config())


def test_secrets_of_the_environment_stay_out_of_every_file(
    gsm_mini_task: HarnessTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "zq-any-form-0123456789"
    monkeypatch.setenv("LOCAL_KEY", secret)
    monkeypatch.setenv("LOCAL_DIES", f"told {secret}")
    suite = suite_of(
        "eager",
        api_key_env="LOCAL_KEY",
        env={"HF_TOKEN": secret},
        args=["--api-key", secret],
    )
    folder = tmp_path / "run"
    done = run(suite, gsm_mini_task, folder, items=8)
    assert "told ***" in done.failed["eager"]
    for path in folder.rglob("*"):
        if path.is_file():
            assert secret not in path.read_text(errors="replace"), path
    assert read_run(folder).engine.options["api_key_env"] == "LOCAL_KEY"
