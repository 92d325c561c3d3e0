"""Servers that run already: URLs by arm, what cannot be told, and every way to name a wrong one."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from served import COMMAND, local_server, outcomes, run, suite_of, verdict
from serving import app_of, events, piece, stream
from serving import served as serving

from evalsuite.engines.opening import open_engine
from evalsuite.engines.serving.process import free_port
from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask, load_task
from evalsuite.protocol import Chat, ThinkingModel
from evalsuite.records import Options
from evalsuite.storage import read_evidence, read_records, read_run
from evalsuite.suite import EngineConfig, Suite

KEY = "zq-any-form-0123456789"


def openai(url: str, **options: Any) -> Suite:
    given: Options = {"url": url, "retry_s": 3.0, "stall_s": 8.0, "warm_up": 2, **options}
    return Suite(
        name="endpoint",
        engine=EngineConfig(kind="openai", concurrency=8, options=given),
        task="gsm_mini",
        arms=("mtp1",),
        unavailable=("route", "acceptance"),
    )


def test_arms_with_servers_of_their_own_are_interleaved(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with (
        local_server("--enforce-eager") as eager,
        local_server("--speculative-config", '{"num_speculative_tokens": 3}') as mtp,
    ):
        urls = {"eager": eager.url, "mtp3": f"{mtp.url}/v1/"}
        done = run(suite_of("eager", "mtp3", urls=urls), gsm_mini_task, folder)
    assert done.failed == {}
    blocks = {arm: read_records(folder, arm) for arm in ("eager", "mtp3")}
    assert blocks["eager"][-1].started > blocks["mtp3"][0].started
    evidence = read_evidence(folder, "mtp3")
    assert (evidence.draft_length, evidence.graph_replays) == (3, None)
    assert evidence.read_back is not None
    assert evidence.read_back["graph_mode"] == "FULL_AND_PIECEWISE"
    # Without its log an attached server tells nothing of graphs, and the suite did not declare it.
    missing = {f.evidence for f in verdict(folder).findings if f.status == "missing"}
    assert missing == {"graph_replays", "eager_decode_steps", "routes"}


def test_the_log_of_an_attached_server_tells_the_rest(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", tmp_path / "server.log"
    with local_server("--cudagraph-metrics") as server:
        assert server.process.stdout is not None
        lines = server.process.stdout

        def copy() -> None:
            with log.open("wb") as file:
                for line in lines:
                    file.write(line)
                    file.flush()

        threading.Thread(target=copy, daemon=True).start()
        while not log.exists() or b"backend" not in log.read_bytes():
            time.sleep(0.02)
        run(suite_of("graph", url=server.url, log=str(log)), gsm_mini_task, folder)
    evidence = read_evidence(folder, "graph")
    assert evidence.backend == "FLASH_ATTN_MLA_SPARSE"
    assert evidence.graph_replays


def test_one_server_for_two_arms_is_caught(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with local_server("--enforce-eager") as server:
        run(suite_of("eager", "graph", url=server.url), gsm_mini_task, folder, items=16)
    found = [f.message for f in verdict(folder).findings if f.status == "fail"]
    assert "graph runs with enforce_eager = True, not False" in found


def test_any_endpoint_is_judged_and_the_verdict_names_what_did_not_run(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with local_server() as server:
        run(openai(server.url + "/v1"), gsm_mini_task, folder)
    assert Counter(outcomes(folder, "mtp1")) == {"correct": 40}
    result = verdict(folder)
    assert result.verdict == "pass"
    declared = {
        (f.check, f.evidence) for f in result.findings if "declared by the suite" in f.message
    }
    assert declared == {
        ("route", "graph_replays"),
        ("route", "eager_decode_steps"),
        ("route", "steps_by_kind"),
        ("route", "routes"),
        ("route", "draft_length"),
        ("acceptance", "drafts"),
        ("acceptance", "drafted_tokens"),
        ("acceptance", "accepted_per_position"),
    }
    assert (result.checks["route"], result.checks["acceptance"]) == ("skipped", "skipped")
    assert read_run(folder).model == "tiny"


def test_what_is_not_declared_absent_is_missing(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with local_server() as server:
        undeclared = replace(openai(server.url), unavailable=())
        run(undeclared, gsm_mini_task, folder, items=8)
    missing = {f.evidence for f in verdict(folder).findings if f.status == "missing"}
    assert {"drafts", "graph_replays", "draft_length"} <= missing
    assert verdict(folder).verdict == "fail"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"served_model": "other"}, "no model 'other' at http.*; it offers: tiny"),
        ({"url": "http://127.0.0.1:9"}, "url: nothing answers at http://127.0.0.1:9"),
        ({"url": "http://u:zqsecretzq@127.0.0.1:9"}, r"nothing answers at http://\*\*\*@127"),
        ({"api_key_env": "NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE is not set"),
        ({"api_key_env": "sk-0123456789"}, "must be the name of an environment variable"),
    ],
)
def test_a_wrong_address_model_or_key_is_refused_before_anything_is_written(
    gsm_mini_task: HarnessTask, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    folder = tmp_path / "run"
    with local_server() as server, pytest.raises(UsageError, match=message) as caught:
        run(openai(**{"url": server.url, **options}), gsm_mini_task, folder)
    assert not folder.exists()
    assert "zqsecretzq" not in str(caught.value) and "0123456789" not in str(caught.value)


def test_an_arm_without_a_url(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    with local_server() as server, pytest.raises(UsageError, match="no URL for arm graph"):
        run(suite_of("eager", "graph", urls={"eager": server.url}), gsm_mini_task, tmp_path / "r")


def test_a_key_that_expires_ends_the_arm_and_the_run_resumes_with_a_new_one(
    gsm_mini_task: HarnessTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = 0
    good = {KEY}

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal answered
        given = request.headers["Authorization"].removeprefix("Bearer ")
        if given not in good:
            return web.Response(status=401, text=f"the key {given} has expired")
        answered += 1
        if answered == 20:
            good.discard(KEY)
        return await stream(request, events(piece(" #### 4", "stop"), "[DONE]"))

    monkeypatch.setenv("MY_KEY", KEY)
    folder = tmp_path / "run"
    with serving(app_of(handler)) as url:
        suite = openai(url, api_key_env="MY_KEY")
        done = run(suite, gsm_mini_task, folder)
        assert "HTTP 401: the key *** has expired" in done.failed["mtp1"]
        assert 0 < len(read_records(folder, "mtp1")) < 40
        assert "error" not in outcomes(folder, "mtp1")
        new_key = KEY[::-1]
        good.add(new_key)
        monkeypatch.setenv("MY_KEY", new_key)
        assert run(suite, gsm_mini_task, folder, mode="resume").failed == {}
    assert len(read_records(folder, "mtp1")) == 40
    for path in folder.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace")
            assert KEY not in text and new_key not in text, path


def test_a_full_queue_is_waited_for_and_counted(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with local_server(LOCAL_QUEUE="2", LOCAL_DELAY_S="0.001") as server:
        run(suite_of("graph", url=server.url, retry_s=60.0), gsm_mini_task, folder)
    assert Counter(outcomes(folder, "graph")) == {"correct": 40}
    log = (folder / "graph" / "engine.log").read_text()
    assert "429: " in log and "0 failures" in log


def test_a_restart_under_load_ends_the_arm_and_the_run_resumes(
    gsm_mini_task: HarnessTask, tmp_path: Path
) -> None:
    folder, port, asked = tmp_path / "run", free_port(), tmp_path / "asked"
    slow = {"LOCAL_DELAY_S": "0.02", "LOCAL_ASKED": str(asked)}
    suite = suite_of("graph", url=f"http://127.0.0.1:{port}")
    with local_server(port=port, **slow) as first:

        def restart() -> None:
            while not asked.exists() or asked.read_text().count("\n") < 30:
                time.sleep(0.01)
            first.process.send_signal(signal.SIGKILL)
            first.process.wait()

        killer = threading.Thread(target=restart)
        killer.start()
        supervisor = threading.Thread(target=_start_again, args=(first.process, port))
        supervisor.start()
        done = run(suite, gsm_mini_task, folder, items=80)
        killer.join()
        supervisor.join()
        assert "started anew" in done.failed["graph"] or "is gone" in done.failed["graph"]
        assert set(outcomes(folder, "graph")) == {"correct"}
        again = _again.pop()
        try:
            assert run(suite, gsm_mini_task, folder, items=80, mode="resume").failed == {}
        finally:
            again.kill()
            again.wait()
    assert Counter(outcomes(folder, "graph")) == {"correct": 80}
    assert len({record.item_id for record in read_records(folder, "graph")}) == 80


_again: list[Any] = []


def _start_again(process: Any, port: int) -> None:
    import subprocess

    process.wait()
    _again.append(subprocess.Popen([*COMMAND, "--port", str(port)], stdout=subprocess.DEVNULL))


@pytest.mark.parametrize("fault", ["not JSON", "cut"])
def test_a_faulty_proxy_makes_errors_and_no_wrong_answers(
    gsm_mini_task: HarnessTask, tmp_path: Path, fault: str
) -> None:
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        question = (await request.json())["prompt"]
        assert question
        if count % 10 == 5:
            broken = b"data: <html>bad gateway\n\n" if fault == "not JSON" else events(piece(" #"))
            return await stream(request, broken)
        return await stream(request, events(piece(" #### 4", "stop"), "[DONE]"))

    folder = tmp_path / "run"
    with serving(app_of(handler)) as url:
        done = run(openai(url), gsm_mini_task, folder)
    assert done.failed == {}
    found = Counter(outcomes(folder, "mtp1"))
    assert found["error"] == 4 and found.total() == 40
    errors = [r for r in read_records(folder, "mtp1") if r.outcome == "error"]
    assert all(r.text is None and r.error for r in errors)
    completeness = [f for f in verdict(folder).findings if f.check == "completeness"]
    assert "fail" in {f.status for f in completeness}


def test_a_chat_with_a_thinking_model(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        parts = [
            {"choices": [{"delta": {"reasoning_content": "Is it #### 5?"}}]},
            {"choices": [{"delta": {"content": "#### 4"}, "finish_reason": "stop"}]},
        ]
        return await stream(request, events(*parts, "[DONE]"))

    chat, thinking = Chat(), ThinkingModel(budget=512)
    task = load_task("gsm_mini", chat=chat, max_tokens=100)
    folder = tmp_path / "run"
    with serving(app_of(handler)) as url:
        suite = Suite(
            name="thinks",
            engine=EngineConfig(
                kind="openai",
                concurrency=4,
                options={"url": url, "chat_template_kwargs": {"enable_thinking": True}},
            ),
            task="gsm_mini",
            arms=("eager",),
            chat=chat,
            thinking=thinking,
        )
        run(suite, task, folder, items=8)
    records = read_records(folder, "eager")
    assert {record.text for record in records} == {"#### 4"}
    assert [turn["role"] for turn in seen[-1]["messages"]] == [
        "user", "assistant", "user", "assistant", "user",
    ]  # fmt: skip
    assert seen[-1]["max_tokens"] == 612
    assert seen[-1]["chat_template_kwargs"] == {"enable_thinking": True}
    protocol = read_run(folder).protocol
    assert (protocol.chat, protocol.thinking) == (chat, thinking)
    assert protocol.chat_template_sha256 is not None


def test_thinking_that_is_never_closed_is_truncated_and_not_wrong(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        thought = {
            "delta": {"reasoning": "It may be #### 5, then 7 more"},
            "finish_reason": "length",
        }
        return await stream(request, events({"choices": [thought]}, "[DONE]"))

    chat = Chat()
    task = load_task("gsm_mini", chat=chat)
    folder = tmp_path / "run"
    with serving(app_of(handler)) as url:
        suite = Suite(
            name="thinks",
            engine=EngineConfig(kind="openai", options={"url": url}),
            task="gsm_mini",
            arms=("eager",),
            chat=chat,
            thinking=ThinkingModel(budget=16),
        )
        run(suite, task, folder, items=8)
    assert set(outcomes(folder, "eager")) == {"truncated"}


def test_a_warm_up_that_fails_ends_the_arm(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, text="max_tokens is too large")

    with serving(app_of(handler)) as url:
        done = run(openai(url), gsm_mini_task, tmp_path / "run")
    assert "2 of 2 warm-up requests failed: HTTP 400: max_tokens" in done.failed["mtp1"]


def test_the_engine_openai_starts_nothing() -> None:
    engine = open_engine(EngineConfig(kind="openai", model="m"))
    with pytest.raises(UsageError, match="starts no server; give --url"):
        engine.describe()


@pytest.mark.parametrize("kind", ["vllm", "sglang", "openai"])
def test_a_server_finds_its_device_by_itself(kind: str) -> None:
    with pytest.raises(UsageError, match=f"engine.device: .*{kind} finds its device by itself"):
        open_engine(EngineConfig(kind=kind, model="m", device="cuda"))


def test_prompts_as_token_ids(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    from evalsuite.paths import EMBEDDED_MODEL

    seen: list[Any] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((await request.json())["prompt"])
        return await stream(request, events(piece(" #### 4", "stop"), "[DONE]"))

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "mini", "root": str(EMBEDDED_MODEL)}]})

    with serving(app_of(handler, models=models)) as url:
        given = openai(url, prompt_ids=True)
        config = EngineConfig(
            kind="openai", model=str(EMBEDDED_MODEL), options=given.engine.options
        )
        run(replace(given, engine=config), gsm_mini_task, tmp_path / "run", items=8)
    assert all(isinstance(prompt, list) and len(prompt) > 50 for prompt in seen)
    assert json.loads(json.dumps(seen[0])) == seen[0]
    with (
        pytest.raises(UsageError, match="prompt_ids: needs a model folder"),
        serving(app_of(handler)) as url,
    ):
        run(openai(url, prompt_ids=True), gsm_mini_task, tmp_path / "other", items=8)
