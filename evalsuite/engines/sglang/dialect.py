"""How SGLang is started and asked, and where it tells what it did."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from evalsuite.client import Style
from evalsuite.engines.serving.dialect import Fetch, LogView, Observed, Target, Told
from evalsuite.engines.serving.identity import plain_dtype
from evalsuite.engines.serving.options import ServingOptions
from evalsuite.engines.serving.prometheus import increase
from evalsuite.engines.serving.reading import installed_version, json_object
from evalsuite.errors import UsageError
from evalsuite.records import Evidence, Settings

MODULE = "sglang.launch_server"
INFO = "/get_server_info"
# SGLang's name for drafting with a model's own MTP layers.
METHOD = "NEXTN"
_PARALLEL = {"tensor_parallel": "--tp", "data_parallel": "--dp", "pipeline_parallel": "--pp"}


class Sglang:
    """SGLang. Its own `/generate` tells token ids, log-probabilities and accepted drafts."""

    name = "sglang"
    style: Style = "generate"
    pages: tuple[str, ...] = (INFO,)
    knows_token_ids = True

    def command(self, target: Target, host: str, port: int) -> list[str]:
        """Return the server's command line for one arm."""
        options, arm = target.options, target.arm
        if options.graph_mode is not None:
            raise UsageError("SGLang has one graph mode", field="engine.options.graph_mode")
        words = _program(options)
        words = [*words, "--model-path", str(target.model), "--host", host, "--port", str(port)]
        words += ["--enable-metrics"]
        if target.dtype is not None:
            words += ["--dtype", target.dtype]
        if options.revision is not None:
            words += ["--revision", options.revision]
        for name, flag in _PARALLEL.items():
            if (size := getattr(options, name)) > 1:
                words += [flag, str(size)]
        if not arm.graph:
            words += ["--disable-cuda-graph"]
        if arm.mtp:
            for name, value in speculation(target).items():
                words += [f"--{name.replace('_', '-')}", str(value)]
        return [*words, *options.args, *options.arm_words(arm)]

    def environment(self, target: Target) -> dict[str, str]:
        """Nothing: what is needed are flags."""
        return {}

    def version(self, fetch: Fetch) -> str | None:
        """Read the version out of the server's configuration."""
        told = json_object(fetch(INFO)).get("version")
        return None if told is None else str(told)

    def installed(self, options: ServingOptions) -> str | None:
        """Ask the interpreter that will run SGLang; None where the command is none."""
        return installed_version(_program(options), MODULE)

    def log_view(self) -> LogView | None:
        """Its log tells nothing that its pages do not."""
        return None

    def awaits(self, target: Target, log: LogView) -> bool:
        """Nothing is awaited."""
        return False

    def asked(self, target: Target, served: str) -> Settings:
        """Return the settings that an arm asks for."""
        return asked_of(target)

    def evidence(self, seen: Observed, version: str | None) -> Evidence:
        """Join the configuration, the metrics and what each answer told."""
        info = json_object(seen.pages.get(INFO))
        asked, found = asked_of(seen.target), read_back(info)
        drafts, drafted, positions = accepted(seen.told, seen.target.arm.mtp)
        told = found.get("num_speculative_tokens")
        return Evidence(
            engine_version=version,
            backend=_text(found.get("attention_backend")),
            graph_replays=None,
            eager_decode_steps=None,
            steps_by_kind=None,
            routes=_routes(found),
            drafts=drafts,
            drafted_tokens=drafted,
            accepted_per_position=positions,
            draft_length=told if isinstance(told, int) else None,
            prefix_hits=_grown(seen, "sglang:cached_tokens"),
            preemptions=_grown(seen, "sglang:num_retracted_requests"),
            asked=asked,
            read_back={key: found[key] for key in asked if key in found} if found else None,
        )


def speculation(target: Target) -> dict[str, Any]:
    """Return SGLang's speculative arguments of an MTP arm: a chain of k drafts."""
    drafts = target.arm.mtp
    return {
        "speculative_algorithm": METHOD,
        "speculative_eagle_topk": 1,
        **target.options.speculative,
        "speculative_num_steps": drafts,
        "speculative_num_draft_tokens": drafts + 1,
    }


def asked_of(target: Target) -> Settings:
    """Return the settings that an arm asks for, by the names under which they are read back."""
    asked: Settings = {
        "disable_cuda_graph": not target.arm.graph,
        "num_speculative_tokens": target.arm.mtp,
        "tensor_parallel": target.options.tensor_parallel,
    }
    if target.dtype is not None:
        asked["dtype"] = plain_dtype(target.dtype)
    return {**asked, **target.options.expect}


def read_back(info: Mapping[str, Any]) -> Settings:
    """Return the settings that `/get_server_info` tells; older servers nest them."""
    nested = info.get("server_args")
    args: Mapping[str, Any] = nested if isinstance(nested, dict) else info
    if "disable_cuda_graph" not in args:
        return {}
    found: Settings = {"disable_cuda_graph": bool(args["disable_cuda_graph"])}
    on = args.get("speculative_algorithm")
    # One of the tokens verified is no draft: it follows from the step before.
    tokens = args.get("speculative_num_draft_tokens") or 0
    found["num_speculative_tokens"] = max(int(tokens) - 1, 0) if on else 0
    for name, key in (("tensor_parallel", "tp_size"), ("attention_backend", "attention_backend")):
        if isinstance(args.get(key), str | int):
            found[name] = args[key]
    if isinstance(args.get("dtype"), str) and args["dtype"] != "auto":
        found["dtype"] = plain_dtype(args["dtype"])
    return found


def accepted(told: Told, k: int) -> tuple[int | None, int | None, list[int] | None]:
    """Return drafts, drafted tokens and accepts per position, from the answers' histograms.

    Entry n of a histogram counts the steps that accepted just n drafts, so position i was accepted
    in all steps with n > i.
    """
    if k == 0 and told.with_histogram == 0:
        return 0, 0, []
    if not told.complete:
        return None, None, None
    counts = [told.histogram.get(n, 0) for n in range(max(max(told.histogram, default=0), k) + 1)]
    return sum(counts), told.drafted, [sum(counts[i + 1 :]) for i in range(len(counts) - 1)]


def _routes(found: Settings) -> dict[str, str] | None:
    backend = _text(found.get("attention_backend"))
    return None if backend is None else {"attention": backend}


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _grown(seen: Observed, name: str) -> int | None:
    if seen.before is None or seen.after is None:
        return None
    return increase(seen.before.total(name), seen.after.total(name))


def _program(options: ServingOptions) -> list[str]:
    return options.command or [sys.executable, "-m", MODULE]
