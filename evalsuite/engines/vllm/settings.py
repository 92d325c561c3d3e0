"""What an arm asks of vLLM, and what the server says that it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalsuite.engines.serving.dialect import Target
from evalsuite.engines.serving.identity import plain_dtype
from evalsuite.engines.vllm.log import VllmLog
from evalsuite.records import Settings

GRAPH_MODE = "FULL_AND_PIECEWISE"
METHOD = "mtp"


def speculation(target: Target) -> dict[str, Any]:
    """Return vLLM's speculative configuration of an MTP arm; the suite may name another method."""
    drafts = target.arm.mtp
    return {"method": METHOD, **target.options.speculative, "num_speculative_tokens": drafts}


def asked_of(target: Target) -> Settings:
    """Return the settings that an arm asks for, by the names under which they are read back."""
    arm, options = target.arm, target.options
    asked: Settings = {
        "enforce_eager": not arm.graph,
        "graph_mode": (options.graph_mode or GRAPH_MODE) if arm.graph else "NONE",
        "num_speculative_tokens": arm.mtp,
        "tensor_parallel": options.tensor_parallel,
    }
    if arm.mtp:
        asked["speculative_method"] = str(speculation(target)["method"])
    if target.dtype is not None:
        asked["dtype"] = plain_dtype(target.dtype)
    return {**asked, **options.expect}


def read_back(config: Mapping[str, Any], log: VllmLog | None) -> Settings:
    """Return the settings that the server runs with, as `/server_info` and its log tell them.

    The log comes second and wins: backends take graph modes back after the configuration is made.
    """
    found: Settings = {}
    if config:
        model, graphs = _part(config, "model_config"), _part(config, "compilation_config")
        spec = _part(config, "speculative_config")
        _put(found, "enforce_eager", model.get("enforce_eager"))
        _put(found, "dtype", plain_dtype(model["dtype"]) if "dtype" in model else None)
        _put(found, "graph_mode", _mode(graphs.get("cudagraph_mode")))
        _put(found, "tensor_parallel", _part(config, "parallel_config").get("tensor_parallel_size"))
        found["num_speculative_tokens"] = spec.get("num_speculative_tokens", 0)
        _put(found, "speculative_method", spec.get("method"))
    if log is not None:
        found |= log.settings
        if log.backends:
            found["attention_backend"] = "+".join(sorted(log.backends))
        if log.downgraded is not None:
            found["graph_mode"] = log.downgraded
    if found.get("enforce_eager") is True:
        found["graph_mode"] = "NONE"
    return found


def _part(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _put(found: Settings, name: str, value: Any) -> None:
    if isinstance(value, str | int | float | bool):
        found[name] = value


def _mode(value: Any) -> str | None:
    """Return a graph mode by name; pydantic writes some versions' enum as its value."""
    if isinstance(value, str):
        return value.rpartition(".")[2]
    if isinstance(value, list):
        return "FULL_AND_PIECEWISE" if value == [2, 1] else "FULL_DECODE_ONLY"
    return {0: "NONE", 1: "PIECEWISE", 2: "FULL"}.get(value)
