"""Real vLLM over the wire: modes that differ, proxies that break, servers that stop and die."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from aiohttp import web
from live import Live, run, suite_of, verdict
from msgspec.structs import replace
from serving import served

from evalsuite import planning
from evalsuite.compare import compare_runs
from evalsuite.errors import EXIT_FAIL, UsageError
from evalsuite.harness import HarnessTask, load_task
from evalsuite.storage import read_evidence, read_records
from evalsuite.suite import EngineConfig, Suite

ITEMS = 24


@pytest.fixture(scope="module")
def task() -> HarnessTask:
    return load_task("gsm_mini", max_tokens=64)


def openai(url: str, **options: Any) -> Suite:
    return Suite(
        name="endpoint",
        engine=EngineConfig(kind="openai", concurrency=16, options={"url": url, **options}),
        task="gsm_mini",
        arms=("eager",),
        unavailable=("route", "acceptance"),
    )


def test_one_eager_server_for_three_arms_is_caught(
    task: HarnessTask, dsv3: str, eager_server: Live, tmp_path: Path
) -> None:
    log = str(eager_server.process.log)
    suite = suite_of("eager", "graph", "mtp1", model=dsv3, url=eager_server.url, log=log)
    assert run(suite, task, tmp_path / "run", items=ITEMS).failed == {}
    found = [f.message for f in verdict(tmp_path / "run").findings if f.status == "fail"]
    assert "graph runs with enforce_eager = True, not False" in found
    assert "mtp1 runs with enforce_eager = True, not False" in found
    assert "mtp1 runs with num_speculative_tokens = 0, not 1" in found
    assert "mtp1 drafted 0 tokens a step, not 1" in found
    assert "mtp1 made no drafts: speculation never ran" in found
    assert not any(message.startswith("eager runs with") for message in found)
    # Attached, the log of the server tells what it would have told had it been started here.
    evidence = read_evidence(tmp_path / "run", "eager")
    assert evidence.backend is not None and evidence.read_back == evidence.asked


def test_a_real_fault_of_a_release_is_caught(dsv3: str, trained: bool, tmp_path: Path) -> None:
    """The rotary kernel of vLLM 0.32 on CPUs against the same model computed without it.

    A model that scales its rope, as the miniature does by the factor 1, runs another one.
    """
    if not trained:
        pytest.skip("the miniature has random weights here")
    plain = tmp_path / "plain"
    shutil.copytree(dsv3, plain)
    config = json.loads((plain / "config.json").read_text())
    (plain / "config.json").write_text(json.dumps({**config, "rope_scaling": None}))
    task = load_task("gsm_mini", max_tokens=192)
    run(suite_of("eager", model=str(plain)), task, tmp_path / "healthy", items=48)
    run(suite_of("eager", model=str(plain), arm_args={}), task, tmp_path / "faulty", items=48)
    compared = compare_runs(tmp_path / "healthy", tmp_path / "faulty")
    assert compared.exit_code == EXIT_FAIL
    failing = {f.check for f in compared.verdict.findings if f.status == "fail"}
    assert {"accuracy", "degeneration"} <= failing


def test_any_client_of_openai_gets_the_same_answers(
    task: HarnessTask, dsv3: str, eager_server: Live, tmp_path: Path
) -> None:
    run(openai(eager_server.url), task, tmp_path / "openai", items=ITEMS)
    ids = suite_of("eager", model=dsv3, url=eager_server.url, prompt_ids=True, stream=False)
    run(ids, task, tmp_path / "vllm", items=ITEMS)
    first = {r.item_id: r for r in read_records(tmp_path / "openai", "eager")}
    second = {r.item_id: r for r in read_records(tmp_path / "vllm", "eager")}
    assert {r.error for r in (*first.values(), *second.values())} == {None}
    # Batches differ from run to run, and bfloat16 with them.
    same = sum(first[key].text == second[key].text for key in first)
    assert same >= 0.8 * ITEMS
    assert {r.prompt_tokens for r in first.values()} == {r.prompt_tokens for r in second.values()}


def test_a_wrong_model_and_a_wrong_port_are_refused(
    task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    wrong = replace(openai(eager_server.url), engine=EngineConfig(
        kind="openai", model="no/such", options={"url": eager_server.url}))  # fmt: skip
    with pytest.raises(UsageError, match=r"no model 'no/such' at .*; it offers: /"):
        run(wrong, task, tmp_path / "run", items=8)
    with pytest.raises(UsageError, match=r"nothing answers at http://127\.0\.0\.1:9"):
        run(openai("http://127.0.0.1:9"), task, tmp_path / "run", items=8)
    assert not (tmp_path / "run").exists()


def proxy(target: str, fault: str, every: int) -> web.Application:
    """Pass everything on to `target`, and break every n-th completion."""
    count = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal count
        body = await request.read()
        broken = False
        if request.path.endswith("/completions"):
            count += 1
            broken = count % every == 0
        if broken and fault == "503":
            return web.Response(status=503, text="no backend")
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, target + request.path_qs, data=body,
                headers={"Content-Type": "application/json"},
            ) as upstream,
        ):  # fmt: skip
            response = web.StreamResponse(status=upstream.status)
            await response.prepare(request)
            passed = 0
            async for block in upstream.content.iter_any():
                if broken and passed > 300:
                    if fault == "not JSON":
                        await response.write(b"data: <html>502 Bad Gateway</html>\n\n")
                        break
                    assert request.transport is not None
                    request.transport.abort()
                    break
                await response.write(block)
                passed += len(block)
            return response

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    return app


@pytest.mark.parametrize("fault", ["cut", "not JSON", "503"])
def test_a_faulty_proxy_before_a_real_server(
    task: HarnessTask, eager_server: Live, tmp_path: Path, fault: str
) -> None:
    with served(proxy(eager_server.url, fault, every=7)) as url:
        done = run(openai(url, warm_up=1), task, tmp_path / "run", items=ITEMS)
    assert done.failed == {}
    found = Counter(r.outcome for r in read_records(tmp_path / "run", "eager"))
    assert found.total() == ITEMS
    if fault == "503":
        assert found["error"] == 0
        assert "503: " in (tmp_path / "run" / "eager" / "engine.log").read_text()
    else:
        assert found["error"] == (ITEMS + 1) // 7
        assert verdict(tmp_path / "run").verdict == "fail"


def test_stopped_killed_and_resumed_a_run_comes_to_its_end(
    task: HarnessTask, dsv3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This takes minutes, in which somebody may commit; a run goes on under its own commit only.
    monkeypatch.setattr(planning, "checkout", dict)
    suite = suite_of("eager", model=dsv3, concurrency=4, stall_s=12.0, stop_timeout_s=5.0)
    folder = tmp_path / "run"
    saved: list[int] = []
    for number, told in ((signal.SIGSTOP, "nothing came from the server for 12 s"),
                         (signal.SIGKILL, "the server is gone")):  # fmt: skip
        saboteur = threading.Thread(
            target=_signal_after, args=(folder, len(saved) * 12 + 6, number)
        )
        saboteur.start()
        mode = "resume" if saved else "new"
        done = run(suite, task, folder, items=64, mode=mode)  # type: ignore[arg-type]
        saboteur.join()
        assert told in done.failed["eager"]
        assert _vllm_processes() == []
        saved.append(len(read_records(folder, "eager")))
        assert verdict(folder).verdict == "incomplete"
    assert 0 < saved[0] < saved[1] < 64
    assert run(suite, task, folder, items=64, mode="resume").failed == {}
    records = read_records(folder, "eager")
    assert len(records) == len({record.item_id for record in records}) == 64
    assert {record.error for record in records} == {None}
    assert _vllm_processes() == []


def _signal_after(folder: Path, count: int, number: int) -> None:
    """Send a signal to the server's engine process once `count` requests were seen in its log."""
    log = folder / "eager" / "engine.log"
    until = time.monotonic() + 600
    while time.monotonic() < until:
        time.sleep(0.2)
        if log.exists() and _answered(log) > count:
            for process in _vllm_processes():
                os.kill(process, number)
            return


def _answered(log: Path) -> int:
    text = log.read_text(errors="replace")
    # The warm-up asks eight; each start of a server begins anew.
    return text.rpartition("\n$ ")[2].count("POST /v1/completions") - 8


def _vllm_processes() -> list[int]:
    """Process ids of servers that this process started, their engines included."""
    own = psutil.Process().children(recursive=True)
    return [one.pid for one in own if _is_vllm(_words(one))]


def _is_vllm(words: str) -> bool:
    return "serving.guard" not in words and ("api_server" in words or "VLLM::" in words)


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
