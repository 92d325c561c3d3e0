"""Requests as they are sent, and answers as they come, whole or in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from evalsuite.client.settings import ClientSettings, Prompt, Style


class Alternative(msgspec.Struct):
    """One token that could have been chosen (chat)."""

    logprob: float


class TokenLogprobs(msgspec.Struct):
    """One token's alternatives (chat)."""

    top_logprobs: list[Alternative] | None = None


class Logprobs(msgspec.Struct):
    """Log-probabilities: `top_logprobs` of completions, `content` of chat."""

    top_logprobs: list[dict[str, float | None] | None] | None = None
    content: list[TokenLogprobs] | None = None


class Message(msgspec.Struct):
    """A chat answer or a piece of one; servers name the thinking either way."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class MetaInfo(msgspec.Struct):
    """What SGLang tells of one answer; histograms carry either name."""

    finish_reason: Any = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    output_top_logprobs: list[list[tuple[float | None, int, Any]] | None] | None = None
    spec_draft_token_num: int | None = None
    spec_num_proposed_drafts: int | None = None
    spec_accept_token_num: int | None = None
    spec_num_correct_drafts: int | None = None
    spec_accept_histogram: list[int] | None = None
    spec_correct_drafts_histogram: list[int] | None = None


class Choice(msgspec.Struct):
    """One answer or a piece of one."""

    text: str | None = None
    delta: Message | None = None
    message: Message | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    meta_info: MetaInfo | None = None


class Usage(msgspec.Struct):
    """Token counts."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Speculation(msgspec.Struct):
    """vLLM's figures of one answer (--per-request-spec-decode-metrics)."""

    acceptance_histogram: list[int] | None = None
    num_draft_tokens: int | None = None


class Metrics(msgspec.Struct):
    """vLLM's figures of one answer."""

    speculative_decoding: Speculation | None = None


class Chunk(msgspec.Struct):
    """A whole answer, or one event of a stream. `/generate` sends text, ids and meta at the top,
    and in a stream all of the answer so far in each event."""

    choices: list[Choice] = []
    usage: Usage | None = None
    metrics: Metrics | None = None
    error: Any = None
    text: str | None = None
    output_ids: list[int] | None = None
    meta_info: MetaInfo | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
PATHS: Mapping[Style, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "generate": "/generate",
}


def body_of(prompt: Prompt, settings: ClientSettings) -> bytes:
    """Return the JSON body that asks for `prompt` greedily."""
    budget = 0 if settings.thinking is None else settings.thinking.budget
    if settings.style == "generate":
        return msgspec.json.encode({**_generate(prompt, settings, budget), **settings.extra})
    body: dict[str, Any] = {
        "model": settings.model,
        "max_tokens": prompt.max_tokens + budget,
        "temperature": 0.0,
        "stream": settings.stream,
        **_question(prompt, settings),
    }
    if prompt.stops:
        body["stop"] = list(prompt.stops)
    if settings.seed is not None:
        body["seed"] = settings.seed
    if settings.stream:
        body["stream_options"] = {"include_usage": True}
    if settings.token_ids:
        body["return_token_ids"] = True
    return msgspec.json.encode({**body, **settings.extra})


def _question(prompt: Prompt, settings: ClientSettings) -> Mapping[str, Any]:
    tops = settings.top_logprobs
    if settings.style == "chat":
        turns = prompt.messages or (("user", prompt.text),)
        asked: dict[str, Any] = {"messages": [{"role": r, "content": c} for r, c in turns]}
        if tops is not None:
            asked |= {"logprobs": True, "top_logprobs": tops}
        return asked
    asked = {"prompt": prompt.text if prompt.ids is None else list(prompt.ids)}
    if tops is not None:
        asked["logprobs"] = tops
        # Two tokens of one spelling would otherwise share a key. Servers that do not know the
        # parameter are asked without token ids.
        if settings.token_ids:
            asked["return_tokens_as_token_ids"] = True
    return asked


def _generate(prompt: Prompt, settings: ClientSettings, budget: int) -> dict[str, Any]:
    sampling: dict[str, Any] = {
        "temperature": 0.0,
        "max_new_tokens": prompt.max_tokens + budget,
        "stop": list(prompt.stops),
    }
    if settings.seed is not None:
        sampling["sampling_seed"] = settings.seed
    asked = {"text": prompt.text} if prompt.ids is None else {"input_ids": list(prompt.ids)}
    body: dict[str, Any] = {**asked, "sampling_params": sampling, "stream": settings.stream}
    if settings.top_logprobs is not None:
        body |= {"return_logprob": True, "top_logprobs_num": settings.top_logprobs}
    return body


def margins_of_meta(meta: MetaInfo) -> list[float | None]:
    """Return top-1 minus top-2 of each token that `/generate` tells alternatives of."""
    return [
        _margin([value for value, *_ in row or () if value is not None])
        for row in meta.output_top_logprobs or ()
    ]


def margins_of(logprobs: Logprobs) -> list[float | None]:
    """Return top-1 minus top-2 of each token, None where there are no two."""
    if logprobs.content is not None:
        rows = [[a.logprob for a in token.top_logprobs or ()] for token in logprobs.content]
    else:
        rows = [
            [value for value in (row or {}).values() if value is not None]
            for row in logprobs.top_logprobs or ()
        ]
    return [_margin(row) for row in rows]


def _margin(values: list[float]) -> float | None:
    if len(values) == 2:
        return abs(values[0] - values[1])
    best = sorted(values, reverse=True)
    return best[0] - best[1] if len(best) > 1 else None
