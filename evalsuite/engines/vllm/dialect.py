"""How vLLM is started and asked, and where it tells what it did."""

from __future__ import annotations

import json
import sys

from evalsuite.client import Style
from evalsuite.engines.serving.dialect import Fetch, LogView, Observed, Target
from evalsuite.engines.serving.options import ServingOptions
from evalsuite.engines.serving.reading import installed_version, json_object
from evalsuite.engines.vllm.evidence import evidence_of
from evalsuite.engines.vllm.log import VllmLog
from evalsuite.engines.vllm.settings import GRAPH_MODE, asked_of, speculation
from evalsuite.records import Evidence, Settings

MODULE = "vllm.entrypoints.openai.api_server"
STATS_INTERVAL_S = "1"
_PARALLEL = {
    "tensor_parallel": "--tensor-parallel-size",
    "data_parallel": "--data-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
}


class Vllm:
    """vLLM 0.20 and later."""

    name = "vllm"
    style: Style = "completions"
    pages: tuple[str, ...] = ("/server_info?config_format=json",)
    knows_token_ids = True

    def command(self, target: Target, host: str, port: int) -> list[str]:
        """Return the server's command line for one arm."""
        options, arm = target.options, target.arm
        words = _program(options)
        words = [*words, "--model", str(target.model), "--host", host, "--port", str(port)]
        if target.dtype is not None:
            words += ["--dtype", target.dtype]
        if options.revision is not None:
            words += ["--revision", options.revision]
        for name, flag in _PARALLEL.items():
            if (size := getattr(options, name)) > 1:
                words += [flag, str(size)]
        if arm.graph:
            mode = options.graph_mode or GRAPH_MODE
            words += ["--compilation-config", json.dumps({"cudagraph_mode": mode})]
        else:
            words += ["--enforce-eager"]
        if options.graph_metrics:
            words += ["--cudagraph-metrics"]
        if arm.mtp:
            words += ["--speculative-config", json.dumps(speculation(target))]
        return [*words, *options.args, *options.arm_words(arm)]

    def environment(self, target: Target) -> dict[str, str]:
        """Let the server tell its configuration, and its statistics often."""
        return {"VLLM_SERVER_DEV_MODE": "1", "VLLM_LOG_STATS_INTERVAL": STATS_INTERVAL_S}

    def version(self, fetch: Fetch) -> str | None:
        """Read the page `/version`."""
        told = json_object(fetch("/version")).get("version")
        return None if told is None else str(told)

    def installed(self, options: ServingOptions) -> str | None:
        """Ask the interpreter that will run vLLM; None where the command is none, a container."""
        return installed_version(_program(options), MODULE)

    def log_view(self) -> VllmLog:
        """Return a reader of vLLM's log lines."""
        return VllmLog()

    def awaits(self, target: Target, log: LogView) -> bool:
        """Whether the log has yet to tell of graphs: it does so once in a while."""
        return target.options.graph_metrics and isinstance(log, VllmLog) and log.tables == 0

    def asked(self, target: Target, served: str) -> Settings:
        """Return the settings that an arm asks for."""
        return asked_of(target)

    def evidence(self, seen: Observed, version: str | None) -> Evidence:
        """Join metrics, `/server_info` and the log."""
        page = seen.pages.get(self.pages[0])
        config = json_object(page).get("vllm_config")
        log = seen.log if isinstance(seen.log, VllmLog) else None
        return evidence_of(seen, config if isinstance(config, dict) else {}, log, version)


def _program(options: ServingOptions) -> list[str]:
    return options.command or [sys.executable, "-m", MODULE]
