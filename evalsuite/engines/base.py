"""What every engine offers: sessions, one for each arm, that answer requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from evalsuite.arms import Arm
from evalsuite.records import Evidence, FinishReason, Settings


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete greedily within `max_tokens`, up to the first of `stop`.

    `prompt_ids` are the prompt's token ids where the caller has them already. `messages` are the
    turns of a chat as (role, content); `prompt` is then their JSON.
    """

    request_id: str
    prompt: str
    max_tokens: int
    stop: tuple[str, ...]
    prompt_ids: tuple[int, ...] | None = None
    messages: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request; None where the engine cannot tell.

    `text` excludes the stop string. `margins` are top-1 minus top-2 logits of the emitted tokens.
    `started` and `ended` are `time.time()` seconds, `ttft_s` seconds to the first token. `error`
    is set, and `text` None, when no answer was obtained.
    """

    request_id: str
    text: str | None
    token_ids: tuple[int, ...] | None
    margins: tuple[float, ...] | None
    finish_reason: FinishReason | None
    prompt_tokens: int | None
    output_tokens: int | None
    started: float
    ended: float
    ttft_s: float | None
    drafted: int | None
    accepted: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """What run.json says of an engine.

    `model_hash` is a hash over the weights and the tokenizer. `hardware` has `device` (cpu, cuda,
    rocm), `name` and `count` and nothing that changes between two runs on one machine; `software`
    has versions by name. `concurrency` is the number of requests at once, where the engine knows,
    and `chat_template` the template that chats go through.
    """

    name: str
    version: str | None
    model: str | None
    model_hash: str
    dtype: str
    hardware: Settings
    software: Settings
    concurrency: int | None = None
    chat_template: str | None = None


class ArmSession(Protocol):
    """One arm of an engine, ready to answer. Several may be open at once."""

    def warm_up(self) -> None:
        """Do all that is done once (capture, tuning), outside the measured time and evidence."""

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        """Answer every request exactly once, calling `on_answer` as each is finished."""

    def evidence(self) -> Evidence:
        """Return what happened since the warm-up; may be asked for from within `on_answer`."""

    def close(self) -> None:
        """Free what the session holds."""


class Engine(Protocol):
    """Something that answers."""

    @property
    def name(self) -> str:
        """The engine's kind: mini, vllm, sglang, openai."""

    @property
    def interleaves(self) -> bool:
        """Whether several sessions may be open at once, so that arms can be interleaved."""

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for the first request that no arm could serve, a too long prompt say."""

    def start(self, arm: Arm) -> ArmSession:
        """Open a session. Raises UsageError where this engine cannot run `arm`."""

    def describe(self) -> EngineDescription:
        """Return model, dtype, hardware and software."""

    def close(self) -> None:
        """Free what the engine holds."""


@runtime_checkable
class KeepsLogs(Protocol):
    """An engine that has logs of its own to write."""

    def keep_logs(self, folder: Path) -> None:
        """Append to `<arm>/engine.log` in the run's `folder` from now on."""
