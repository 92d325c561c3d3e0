"""Evidence of an arm of vLLM, from its metrics, its configuration and its log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalsuite.engines.serving.dialect import Observed
from evalsuite.engines.serving.prometheus import Metrics, increase
from evalsuite.engines.vllm.log import VllmLog
from evalsuite.engines.vllm.settings import asked_of, read_back
from evalsuite.records import Evidence, Settings

_DRAFTS = "vllm:spec_decode_num_drafts"
_DRAFTED = "vllm:spec_decode_num_draft_tokens"
_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos"
_CORRUPTED = "vllm:corrupted_requests"


def evidence_of(
    seen: Observed, config: Mapping[str, Any], log: VllmLog | None, version: str | None
) -> Evidence:
    """Return the evidence. vLLM counts no steps by row kind; `routes` names what the log tells of
    attention and expert kernels, architectures and the draft metadata."""
    asked, found = asked_of(seen.target), read_back(config, log)
    drafts, drafted, positions = _speculation(seen)
    corrupted = _grown(seen, _CORRUPTED)
    if corrupted is not None:
        # NaN in the logits is no setting, but as sure a sign that this is not what was asked for.
        asked, found = (
            {**asked, "corrupted_requests": 0},
            {**found, "corrupted_requests": corrupted},
        )
    replays, eager = _graphs(seen, log)
    return Evidence(
        engine_version=version,
        backend=_backend(found),
        graph_replays=replays,
        eager_decode_steps=eager,
        steps_by_kind=None,
        routes=_routes(log),
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_per_position=positions,
        draft_length=_draft_length(seen, found, positions),
        prefix_hits=_grown(seen, "vllm:prefix_cache_hits"),
        preemptions=_grown(seen, "vllm:num_preemptions"),
        asked=asked,
        read_back={key: found[key] for key in asked if key in found} if found else None,
    )


def _grown(seen: Observed, name: str) -> int | None:
    if seen.before is None or seen.after is None:
        return None
    return increase(seen.before.total(name), seen.after.total(name))


def _speculation(seen: Observed) -> tuple[int | None, int | None, list[int] | None]:
    """Drafts, drafted tokens and accepts per position; a server that speculates not has no such
    counters, which is as good as a zero."""
    if seen.before is None or seen.after is None:
        return None, None, None
    drafts, drafted = _grown(seen, _DRAFTS), _grown(seen, _DRAFTED)
    if drafts is None:
        return 0, 0, []
    return drafts, drafted, _positions(seen.before, seen.after)


def _positions(before: Metrics, after: Metrics) -> list[int]:
    first, last = before.by_label(_POSITION, "position"), after.by_label(_POSITION, "position")
    order = sorted(last, key=int)
    return [round(last[position] - first.get(position, 0.0)) for position in order]


def _draft_length(seen: Observed, found: Settings, positions: list[int] | None) -> int | None:
    told = found.get("num_speculative_tokens")
    if isinstance(told, int):
        return told
    return None if positions is None else len(positions)


def _graphs(seen: Observed, log: VllmLog | None) -> tuple[int | None, int | None]:
    """Graph replays and eager decode steps, from the statistics tables in the log.

    The tables do not tell decode from prefill. Where the mode has graphs for both, a step without
    one although a captured size fits is an eager decode step or as bad; in the other modes prefill
    runs without graphs and nothing can be said.
    """
    mode = asked_of(seen.target)["graph_mode"]
    if log is None or log.tables == 0 or (seen.target.arm.graph and mode == "NONE"):
        return None, None
    exact = mode in ("NONE", "PIECEWISE", "FULL_AND_PIECEWISE")
    return log.steps.replays, log.steps.eager_small if exact else None


def _backend(found: Settings) -> str | None:
    told = found.get("attention_backend")
    return None if told is None else str(told)


def _routes(log: VllmLog | None) -> dict[str, str] | None:
    if log is None or not (log.backends or log.architectures):
        return None
    routes: dict[str, str] = {}
    named = (("attention", log.backends), ("prefill attention", log.prefill), ("moe", log.moe))
    for name, kernels in named:
        if kernels:
            routes[name] = "+".join(sorted(kernels))
    if log.architectures:
        routes["target"] = log.architectures[0]
    if len(log.architectures) > 1:
        routes["drafter"] = "+".join(log.architectures[1:])
    if log.rebuilt:
        routes["draft metadata"] = "rebuilt"
    return routes
