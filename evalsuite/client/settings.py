"""What is asked of a server, under which limits, and what comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Finish = Literal["stop", "length"]
# OpenAI's completions and chat, and SGLang's own `/generate`, whose answers tell most.
Style = Literal["completions", "chat", "generate"]


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model's thinking is told apart from its answer.

    The server either sends it in a field of its own (`reasoning` or `reasoning_content`) or it
    stands in the text up to `close`. `implied`: the prompt ends inside the thinking, so that `open`
    is not part of the text. `budget` tokens are granted on top of an answer's own.
    """

    open: str = "<think>"
    close: str = "</think>"
    implied: bool = False
    budget: int = 0


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where to ask and how.

    `base_url` ends before `/v1`; `top_logprobs` is the number of alternatives asked for
    with every token (None: none). A request ends after `request_timeout_s`; the whole client gives
    up when nothing at all came for `stall_s` seconds. Faults before a token came are tried again
    for `retry_s` seconds, the first time after `retry_wait_s`. `extra` joins every request's body.
    `identity` reads from the page `/metrics` what tells one server process from the next.
    """

    base_url: str
    model: str
    style: Style = "completions"
    concurrency: int = 64
    stream: bool = True
    top_logprobs: int | None = None
    token_ids: bool = False
    seed: int | None = 0
    request_timeout_s: float = 1800.0
    connect_timeout_s: float = 10.0
    stall_s: float = 300.0
    retry_s: float = 60.0
    retry_wait_s: float = 0.25
    errors_in_a_row: int = 16
    thinking: Thinking | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    health_path: str | None = "/v1/models"
    identity: Callable[[str], str | None] | None = None
    api_key: str | None = field(default=None, repr=False)

    def scrub(self, text: str) -> str:
        """Return `text` without the API key, whatever form it has."""
        return text.replace(self.api_key, "***") if self.api_key else text


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request: `text`, `ids` in its place, or `messages` of (role, content) for chat."""

    request_id: str
    text: str
    max_tokens: int
    stops: tuple[str, ...] = ()
    ids: tuple[int, ...] | None = None
    messages: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `error` is set, and `text` None, where no answer was obtained.

    `margins` are top-1 minus top-2 log-probabilities of the emitted tokens, None unless known for
    each. `accepted_histogram[n]` counts the steps of this answer that accepted just n drafts, and
    `drafted` its draft tokens. Times are `time.time()` seconds; `ttft_s` is None without streaming.
    """

    request_id: str
    text: str | None
    token_ids: tuple[int, ...] | None
    margins: tuple[float, ...] | None
    finish: Finish | None
    prompt_tokens: int | None
    output_tokens: int | None
    started: float
    ended: float
    ttft_s: float | None
    error: str | None
    drafted: int | None = None
    accepted_histogram: tuple[int, ...] | None = None

    @property
    def accepted(self) -> int | None:
        """How many of this answer's tokens were accepted drafts."""
        counts = self.accepted_histogram
        return None if counts is None else sum(n * count for n, count in enumerate(counts))


@dataclass(slots=True)
class Counts:
    """What happened besides answers: attempts repeated and requests failed, by reason."""

    requests: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        parts = [f"{self.requests} requests"]
        for name, counter in (("retries", self.retries), ("failures", self.failures)):
            listed = ", ".join(f"{key}: {number}" for key, number in sorted(counter.items()))
            parts.append(f"{counter.total()} {name}" + (f" ({listed})" if listed else ""))
        return ", ".join(parts)
