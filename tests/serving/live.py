"""Servers of real vLLM on the CPU, and suites over them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from evalsuite.client import Client, ClientSettings, Prompt
from evalsuite.engines.serving.process import ServerProcess, free_port
from evalsuite.engines.serving.starting import readiness
from evalsuite.paths import PACKAGE, ROOT
from evalsuite.suite import EngineConfig, Suite

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
COMMAND = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_LOG_STATS_INTERVAL": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # One worker may use whichever core is free.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # A thread that waits must not spin on a core that another server could use.
    "OMP_WAIT_POLICY": "PASSIVE",
    # All that a miniature can use.
    "OMP_NUM_THREADS": "1",
}
# Room for all requests at once, and no more: several servers share a small machine's memory.
ARGS = ["--max-model-len", "1024", "--max-num-seqs", "16", "--kv-cache-memory-bytes", "134217728"]
START_LIMIT_S = 1500.0
KEY_VARIABLE = "GATE_TEST_KEY"
DSV3 = str(PACKAGE / "models" / "dsv3_mini")
UNAVAILABLE = ("route.steps_by_kind", "route.graph_replays", "route.eager_decode_steps")


def mtp(k: int) -> list[str]:
    """Return the words that ask a server for k drafts by the model's own MTP layer."""
    return ["--speculative-config", f'{{"method": "mtp", "num_speculative_tokens": {k}}}']


@dataclass
class Live:
    """A server of `model` that was started beside the runs which ask it."""

    model: str
    log: Path
    flags: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    port: int = field(default_factory=free_port)
    process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Live:
        """Start it and wait until it answers."""
        words = ["--model", self.model, "--port", str(self.port), "--host", "127.0.0.1"]
        if self.key is not None:
            words += ["--api-key", self.key]
        self.process = ServerProcess(
            [*COMMAND, *words, *self.flags],
            self.log,
            environment={**os.environ, **ENVIRONMENT, **self.environment},
            folder=None,
            grace_s=20.0,
        )
        probe = Client(ClientSettings(self.url, self.model, api_key=self.key))
        try:
            self.process.wait_until(readiness(probe, self.url), START_LIMIT_S)
            # The first answer takes longer than all later ones.
            probe.ask([Prompt("first", "2 + 2 =", 4)], lambda reply: None)
        except BaseException:
            self.process.stop()
            raise
        finally:
            probe.close()
        return self

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.stop()


def processes(log: Path) -> list[psutil.Process]:
    """Return the processes of the server that writes `log`, its engine included."""
    guards = [
        child
        for child in psutil.Process().children(recursive=True)
        if str(log) in _words(child) and "serving.guard" in _words(child)
    ]
    return [one for guard in guards for one in guard.children(recursive=True)]


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def started(*arms: str, model: str = DSV3, concurrency: int = 16, **options: Any) -> Suite:
    """Return a suite that starts vLLM for each arm."""
    own = {"command": COMMAND, "args": ARGS, "env": ENVIRONMENT, "start_timeout_s": START_LIMIT_S}
    return _suite(arms, model, concurrency, {**own, **options})


def attached(*arms: str, to: Live, concurrency: int = 16, **options: Any) -> Suite:
    """Return a suite whose arms ask a running server."""
    return _suite(arms, to.model, concurrency, {**_reached(to), "log": str(to.log), **options})


def endpoint(to: Live, **options: Any) -> Suite:
    """Return a suite that asks a running server as any client of OpenAI's interface would."""
    return Suite(
        name="endpoint",
        engine=EngineConfig(kind="openai", concurrency=16, options={**_reached(to), **options}),
        task="gsm_mini",
        arms=("eager",),
        unavailable=("route", "acceptance"),
    )


def _reached(to: Live) -> dict[str, Any]:
    return {"url": to.url} if to.key is None else {"url": to.url, "api_key_env": KEY_VARIABLE}


def _suite(arms: tuple[str, ...], model: str, concurrency: int, options: dict[str, Any]) -> Suite:
    # On a CPU the arm `graph` is compiled, without graphs.
    given = {"graph_mode": "NONE", "graph_metrics": False, **options}
    return Suite(
        name="vllm-test",
        engine=EngineConfig(
            kind="vllm", model=model, dtype="bfloat16", concurrency=concurrency, options=given
        ),
        task="gsm_mini",
        shots=2,
        arms=arms,
        block_size=16,
        unavailable=UNAVAILABLE,
    )
