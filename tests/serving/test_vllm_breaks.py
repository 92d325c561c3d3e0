"""Real vLLM that hangs, is killed, is started anew or overrun, and proxies before it that break."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from live import Live, attached, endpoint, processes, started
from msgspec.structs import replace
from served import run, verdict
from serving import served

from evalsuite import planning
from evalsuite.harness import HarnessTask
from evalsuite.storage import read_records
from evalsuite.suite import Suite

ITEMS = 24


@pytest.fixture(autouse=True)
def _one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may commit in these minutes; a run goes on under its own commit only."""
    monkeypatch.setattr(planning, "checkout", dict)


class Saboteur:
    """Calls `act` once the server's log tells of `count` answers more than now. It tells of each
    when it begins; with four at a time, all but the last four have ended."""

    def __init__(self, log: Path, count: int, act: Callable[[], None]) -> None:
        self._log, self._act = log, act
        self._wanted = answered(log) + count
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait)

    def _wait(self) -> None:
        while answered(self._log) < self._wanted:
            if self._over.wait(0.05):
                return
        self._act()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *problem: object) -> None:
        self._over.set()
        self._thread.join()


def answered(log: Path) -> int:
    """Return how many answers the server has begun, those of the warm-ups' eight included."""
    return log.read_text(errors="replace").count("POST /v1/completions") if log.exists() else 0


def signalled(log: Path, number: int) -> Callable[[], None]:
    """Return what sends `number` to all processes of the server that writes `log`."""

    def send() -> None:
        for process in processes(log):
            # Some end with their parent.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    return send


def assert_whole(folder: Path, arm: str, items: int) -> None:
    """Each item was answered once, and none by an error."""
    records = read_records(folder, arm)
    assert len(records) == len({record.item_id for record in records}) == items
    assert {record.error for record in records} == {None}


@pytest.mark.patient
def test_killed_it_leaves_no_process_and_resumes_without_asking_twice(
    short_task: HarnessTask, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    log = folder / "graph" / "engine.log"
    # In another mode than asked besides, so that one pair of starts shows both.
    suite = started("graph", concurrency=4, arm_args={"graph": "--enforce-eager"})
    with Saboteur(log, 8 + 10, signalled(log, signal.SIGKILL)):
        done = run(suite, short_task, folder, items=ITEMS)
    assert "the server is gone" in done.failed["graph"]
    assert processes(log) == []
    assert verdict(folder).verdict == "incomplete"
    saved, before = len(read_records(folder, "graph")), answered(log)
    assert 0 < saved < ITEMS
    assert run(suite, short_task, folder, items=ITEMS, mode="resume").failed == {}
    assert processes(log) == []
    assert_whole(folder, "graph", ITEMS)
    assert answered(log) - before == 8 + ITEMS - saved
    found = [f.message for f in verdict(folder).findings if f.status == "fail"]
    assert "graph runs with enforce_eager = True, not False" in found


@pytest.mark.patient
def test_stopped_for_longer_than_the_limit_it_is_noticed_and_the_run_resumes(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", eager_server.log
    suite = attached("eager", to=eager_server, concurrency=4, stall_s=30.0)
    with Saboteur(log, 8 + 10, signalled(log, signal.SIGSTOP)):
        done = run(suite, short_task, folder, items=ITEMS)
    assert "nothing came from the server for 30 s" in done.failed["eager"]
    signalled(log, signal.SIGCONT)()
    assert 0 < len(read_records(folder, "eager")) < ITEMS
    assert verdict(folder).verdict == "incomplete"
    assert run(suite, short_task, folder, items=ITEMS, mode="resume").failed == {}
    assert_whole(folder, "eager", ITEMS)


@pytest.mark.patient
def test_started_anew_under_load_it_ends_the_arm_and_the_run_resumes(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    folder, log = tmp_path / "run", eager_server.log
    suite = attached("eager", to=eager_server, concurrency=4)

    def restart() -> None:
        signalled(log, signal.SIGKILL)()
        eager_server.stop()
        eager_server.start()

    with Saboteur(log, 8 + 10, restart):
        done = run(suite, short_task, folder, items=ITEMS)
    told = done.failed["eager"]
    assert "the server is gone" in told or "started anew" in told
    assert 0 < len(read_records(folder, "eager")) < ITEMS
    assert run(suite, short_task, folder, items=ITEMS, mode="resume").failed == {}
    assert_whole(folder, "eager", ITEMS)


def test_a_full_queue_is_waited_for_and_counted(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    suite = replace(attached("eager", to=eager_server, concurrency=48), block_size=64)
    assert run(suite, short_task, tmp_path / "run", items=64).failed == {}
    assert_whole(tmp_path / "run", "eager", 64)
    log = (tmp_path / "run" / "eager" / "engine.log").read_text()
    assert "503: " in log and "0 failures" in log


@dataclass
class Proxy:
    """Passes everything on to a server and breaks every n-th completion; `expired`: from the n-th
    on all of them."""

    to: Live
    fault: str
    every: int
    count: int = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self.handle)
        return app

    def breaks(self, request: web.Request) -> bool:
        if not request.path.endswith("/completions"):
            return False
        self.count += 1
        return self.count >= self.every if self.fault == "expired" else self.count % self.every == 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        fault = self.fault if self.breaks(request) else None
        if fault == "503":
            return web.Response(status=503, text="no backend")
        key = "Bearer of-last-year" if fault == "expired" else request.headers["Authorization"]
        headers = {"Content-Type": "application/json", "Authorization": key}
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method, self.to.url + request.path_qs,
                data=await request.read(), headers=headers,
            ) as upstream,
        ):  # fmt: skip
            response = web.StreamResponse(status=upstream.status)
            await response.prepare(request)
            passed = 0
            async for block in upstream.content.iter_any():
                if fault in ("cut", "not JSON") and passed > 300:
                    await self._break(request, response)
                    break
                await response.write(block)
                passed += len(block)
            return response

    async def _break(self, request: web.Request, response: web.StreamResponse) -> None:
        if self.fault == "not JSON":
            await response.write(b"data: <html>502 Bad Gateway</html>\n\n")
            return
        assert request.transport is not None
        request.transport.abort()


def through(url: str, to: Live) -> Suite:
    """Return a suite that asks `to` through the proxy at `url`."""
    suite = endpoint(to, url=url, warm_up=1)
    return replace(suite, engine=replace(suite.engine, concurrency=4))


@pytest.mark.parametrize("fault", ["cut", "not JSON", "503"])
def test_a_faulty_proxy_makes_errors_and_no_wrong_answers(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path, fault: str
) -> None:
    with served(Proxy(eager_server, fault, every=7).app()) as url:
        done = run(through(url, eager_server), short_task, tmp_path / "run", items=ITEMS)
    assert done.failed == {}
    found = Counter(r.outcome for r in read_records(tmp_path / "run", "eager"))
    assert found.total() == ITEMS
    if fault == "503":
        assert found["error"] == 0
        assert "503: " in (tmp_path / "run" / "eager" / "engine.log").read_text()
    else:
        assert found["error"] == (ITEMS + 1) // 7
        assert verdict(tmp_path / "run").verdict == "fail"


def test_a_key_that_expires_ends_the_arm_and_the_run_resumes(
    short_task: HarnessTask, eager_server: Live, tmp_path: Path
) -> None:
    folder, proxy = tmp_path / "run", Proxy(eager_server, "expired", every=12)
    with served(proxy.app()) as url:
        suite = through(url, eager_server)
        done = run(suite, short_task, folder, items=ITEMS)
        assert "HTTP 401" in done.failed["eager"]
        records = read_records(folder, "eager")
        assert 0 < len(records) < ITEMS and {record.error for record in records} == {None}
        proxy.fault = "none"
        assert run(suite, short_task, folder, items=ITEMS, mode="resume").failed == {}
    assert_whole(folder, "eager", ITEMS)
