"""One request while it is being answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from evalsuite.errors import UsageError


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt as ids with its budget and stop strings (as bytes)."""

    request_id: str
    prompt: tuple[int, ...]
    max_tokens: int
    stop: tuple[bytes, ...] = ()


@dataclass(slots=True, eq=False)
class Sequence:
    """The state of one request.

    `tokens` are prompt and emitted tokens; `computed` of them are in the caches. `accepted` is the
    number of drafts accepted in the last step: it names the recurrent state to go on from.
    `arrival` orders requests; `tenancy` changes whenever the request gets a slot.
    """

    request: GenerationRequest
    arrival: int
    tokens: list[int]
    slot: int = 0
    tenancy: int = -1
    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    computed: int = 0
    prefilled: bool = False
    accepted: int = 0
    drafts: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    output: bytearray = field(default_factory=bytearray)
    finish_reason: str | None = None
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    steps: int = 0
    started: float = 0.0
    first_token: float | None = None
    ended: float = 0.0

    @property
    def emitted(self) -> int:
        """Tokens emitted so far."""
        return len(self.tokens) - len(self.request.prompt)

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.request.max_tokens - self.emitted


def check_request(request: GenerationRequest, max_model_len: int, vocab_size: int) -> None:
    """Refuse what can never be answered. Raises UsageError naming request and field."""
    where = f"request {request.request_id}"
    if not request.prompt:
        raise UsageError(f"{where}: field prompt: empty prompt")
    if request.max_tokens < 1:
        raise UsageError(f"{where}: field max_tokens: {request.max_tokens}, at least 1 is needed")
    if any(not 0 <= token < vocab_size for token in request.prompt):
        raise UsageError(f"{where}: field prompt: a token id outside 0 .. {vocab_size - 1}")
    need = len(request.prompt) + request.max_tokens
    if need > max_model_len:
        raise UsageError(
            f"{where}: field prompt: {len(request.prompt)} tokens and a budget of "
            f"{request.max_tokens} need {need}, but the session holds {max_model_len} per request"
        )
