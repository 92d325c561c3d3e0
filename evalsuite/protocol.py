"""The protocol: everything besides engine and items that decides a score."""

from __future__ import annotations

import hashlib

import msgspec


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the next token is chosen. Greedy is `temperature` 0."""

    temperature: float
    top_p: float
    seed: int


GREEDY = Sampling(temperature=0.0, top_p=1.0, seed=0)


class Chat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Questions asked as chats: shots as `turns` of their own or all in one, after `system`."""

    turns: bool = True
    system: str | None = None


class ThinkingModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A model that thinks before it answers, within `budget` tokens beside the answer's own.

    Its thinking comes in a field of its own, or stands in the text up to `close`; `implied` where
    the prompt ends inside the thinking, so that the text does not begin with `open`.
    """

    budget: int
    open: str = "<think>"
    close: str = "</think>"
    implied: bool = False

    def __post_init__(self) -> None:
        if self.budget < 0:
            raise ValueError("budget must be at least 0")
        if not self.open or not self.close:
            raise ValueError("open and close must not be empty")


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What decides a score besides engine and items.

    `prefix_sha256` is the hash of the few-shot prefix's UTF-8 bytes, `chat_template_sha256` that of
    the chat template (None: plain completion), `stops` the stop strings in the task's order,
    `max_tokens` the token budget of one answer, `extractor` the version of the answer reading,
    `harness` that of the task library which built the prompts. `chat` and `thinking` are None for
    plain completion by a model that does not think.
    """

    task: str
    task_version: str
    num_fewshot: int
    prefix_sha256: str
    chat_template_sha256: str | None
    stops: tuple[str, ...]
    max_tokens: int
    sampling: Sampling
    extractor: str
    harness: str
    chat: Chat | None = None
    thinking: ThinkingModel | None = None

    def fingerprint(self) -> str:
        """Return 16 hex digits over all fields; equal exactly when every field is equal."""
        fields = msgspec.to_builtins(self)
        # Baselines that are older than these two fields stay what they are.
        for name in ("chat", "thinking"):
            if fields[name] is None:
                del fields[name]
        canonical = msgspec.json.encode(fields, order="sorted")
        return hashlib.sha256(canonical).hexdigest()[:16]

    def differences(self, other: Protocol) -> tuple[str, ...]:
        """Return one `field: ours != theirs` line for each field that differs."""
        return tuple(
            f"protocol.{name}: {mine!r} != {theirs!r}"
            for name in self.__struct_fields__
            if (mine := getattr(self, name)) != (theirs := getattr(other, name))
        )


def sha256_text(text: str) -> str:
    """Return the hex SHA-256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
