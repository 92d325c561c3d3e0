"""Suites, servers and runs over real vLLM."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served import run, verdict

from evalsuite.client import Client, ClientSettings, ServerLost
from evalsuite.engines.serving.process import ServerProcess, free_port
from evalsuite.paths import ROOT
from evalsuite.suite import EngineConfig, Suite

PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
COMMAND = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    # One worker may use whichever core is free.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
ARGS = ["--max-model-len", "1024", "--max-num-seqs", "16"]
# The CPU's own rotary kernel in vLLM 0.32, which runs where nothing is compiled, turns queries of
# three dimensions wrongly: eager answers of a model with MLA are nonsense.
WITHOUT_ROTARY_KERNEL = '--compilation-config \'{"custom_ops": ["all", "-rotary_embedding"]}\''
UNAVAILABLE = (
    "route.steps_by_kind",
    "route.graph_replays",
    "route.eager_decode_steps",
)


def suite_of(*arms: str, model: str | None, concurrency: int = 16, **options: Any) -> Suite:
    """A suite that starts vLLM for each arm. On a CPU `graph` is compiled, without graphs."""
    started: dict[str, Any] = {
        "command": COMMAND,
        "args": ARGS,
        "env": ENVIRONMENT,
        "graph_mode": "NONE",
        "graph_metrics": False,
        "arm_args": {"eager": WITHOUT_ROTARY_KERNEL},
        "start_timeout_s": 1500.0,
    }
    given = options if {"url", "urls"} & options.keys() else {**started, **options}
    given = {"graph_mode": "NONE", "graph_metrics": False, **given}
    return Suite(
        name="dsv3-mini-vllm-test",
        engine=EngineConfig(
            kind="vllm", model=model, dtype="bfloat16", concurrency=concurrency, options=given
        ),
        task="gsm_mini",
        shots=2,
        arms=arms,
        block_size=16,
        unavailable=UNAVAILABLE,
    )


@dataclass
class Live:
    """A running server."""

    process: ServerProcess
    url: str

    def stop(self) -> None:
        self.process.stop()


def start(model: str, log: Path, *flags: str) -> Live:
    """Start vLLM and wait until it answers."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = ServerProcess(
        [*COMMAND, "--model", model, "--port", str(port), "--host", "127.0.0.1", *ARGS, *flags],
        log,
        environment={**os.environ, **ENVIRONMENT},
        folder=None,
        grace_s=20.0,
    )
    probe = Client(ClientSettings(url, model))

    def ready() -> bool:
        try:
            return probe.fetch(url + "/health").status == 200
        except ServerLost:
            return False

    try:
        process.wait_until(ready, 1500.0)
    except BaseException:
        process.stop()
        raise
    finally:
        probe.close()
    return Live(process, url)


__all__ = ["ENVIRONMENT", "PYTHON", "Live", "run", "start", "suite_of", "verdict"]
