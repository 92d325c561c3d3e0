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


class Protocol(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What decides a score besides engine and items.

    `prefix_sha256` is the hash of the few-shot prefix's UTF-8 bytes, `chat_template_sha256` that of
    the chat template (None: plain completion), `stops` the stop strings in the task's order,
    `max_tokens` the token budget of one answer, `extractor` the version of the answer reading,
    `harness` that of the task library which built the prompts.
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

    def fingerprint(self) -> str:
        """Return 16 hex digits over all fields; equal exactly when every field is equal."""
        canonical = msgspec.json.encode(self, order="sorted")
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
