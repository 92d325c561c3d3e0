"""What tests of served engines share: a suite over the program `local_server.py`, and its runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from evalsuite.engines.opening import open_engine
from evalsuite.engines.serving.process import free_port
from evalsuite.harness import HarnessTask, select
from evalsuite.judge import judge
from evalsuite.runfolder import Mode
from evalsuite.runner import Executed, execute
from evalsuite.storage import read_evidence, read_records
from evalsuite.suite import EngineConfig, Suite
from evalsuite.verdict import Verdict

PROGRAM = Path(__file__).parent / "local_server.py"
COMMAND = [sys.executable, str(PROGRAM)]
LIMITS = {"stall_s": 8.0, "retry_s": 10.0, "start_timeout_s": 40.0, "stop_timeout_s": 1.0}


class Watcher:
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def warming(self, arm: str) -> None: ...

    def begin(self, run: Any, done: dict[str, int]) -> None: ...

    def answered(self, arm: str) -> None: ...

    def recorded(self, record: Any) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def suite_of(*arms: str, kind: str = "vllm", model: str | None = "tiny", **options: Any) -> Suite:
    """A suite that starts its arms from `local_server.py`, or attaches where a URL is given."""
    more = LIMITS if "url" in options or "urls" in options else {**LIMITS, "command": COMMAND}
    given: dict[str, Any] = {**more, **options}
    return Suite(
        name="local",
        engine=EngineConfig(kind=kind, model=model, concurrency=8, options=given),
        task="gsm_mini",
        arms=arms or ("eager",),
        block_size=16,
        unavailable=("route.steps_by_kind",),
    )


def run(
    suite: Suite, task: HarnessTask, folder: Path, *, items: int = 40, mode: Mode = "new"
) -> Executed:
    """Run `suite` over `items` items; the engine is closed whatever happens."""
    engine = open_engine(suite.engine_config())
    try:
        chosen = select(task.items, items)
        return execute(suite, task, chosen, engine, folder, mode=mode, watcher=Watcher())
    finally:
        engine.close()


def verdict(folder: Path) -> Verdict:
    """Judge a run without a baseline."""
    return judge(folder, "none")


def route_messages(folder: Path) -> list[str]:
    """What the route check has against a run."""
    found = verdict(folder).findings
    return [f.message for f in found if f.check == "route" and f.status in ("fail", "missing")]


def outcomes(folder: Path, arm: str) -> list[str]:
    return [record.outcome for record in read_records(folder, arm)]


@contextmanager
def local_server(*flags: str, port: int | None = None, **variables: str) -> Iterator[Running]:
    """Run `local_server.py` as a server that somebody else started."""
    port = port or free_port()
    process = subprocess.Popen(
        [*COMMAND, "--port", str(port), *flags],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    running = Running(process, port)
    try:
        running.wait()
        yield running
    finally:
        process.kill()
        process.wait()


class Running:
    """A server with its process."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def wait(self, limit_s: float = 30.0) -> None:
        until = time.monotonic() + limit_s
        while True:
            try:
                urllib.request.urlopen(self.url + "/health", timeout=1).close()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def servers_left() -> list[int]:
    """Process ids of servers that tests of this process started and that still live."""
    own = psutil.Process().children(recursive=True)
    return [child.pid for child in own if str(PROGRAM) in " ".join(_words(child))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


__all__ = ["LIMITS", "PROGRAM", "local_server", "outcomes", "read_evidence", "run", "suite_of"]
