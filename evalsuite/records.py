"""The vocabulary on disk: one struct for every file of a run folder.

    <run>/run.json               Run
    <run>/items.jsonl            Item, a line each
    <run>/<arm>/records.jsonl    Record, a line each
    <run>/<arm>/evidence.json    Evidence

`Run.schema` numbers the format of the whole folder. Decoding is strict: an unknown field, a missing
one or one of another type is an error. A value that is absent is null on disk, never left out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from evalsuite.arms import Arm
from evalsuite.protocol import Protocol

SCHEMA = 1

Scalar = str | int | float | bool | None
Settings = dict[str, Scalar]
Options = dict[str, Scalar | list[Scalar] | dict[str, Scalar]]
FinishReason = Literal["stop", "length", "error"]
Outcome = Literal["error", "degenerate", "truncated", "no_answer", "correct", "wrong", "answered"]
Confidence = Literal["high", "low"]


class DiskStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of everything that reaches disk."""


class Item(DiskStruct, frozen=True):
    """One problem. `item_id` is a hash of question and gold, `gold` the answer as text."""

    item_id: str
    question: str
    gold: str | None


class Plan(DiskStruct, frozen=True):
    """What a run set out to do.

    `items` are item ids in the order of asking. Items are asked in blocks of `block_size`; over
    each block all arms run in turn, forwards in even blocks and backwards in odd ones, so that a
    drift of the machine falls on every arm alike.
    """

    arms: tuple[Arm, ...]
    repeats: int
    block_size: int
    items: tuple[str, ...]


class Shard(DiskStruct, frozen=True):
    """Which part of a larger draw the plan's items are: part `index` (from 1) of `count`.

    `places` are the items' places in the whole draw and `whole` is a hash over its ids, so that the
    parts can be joined in the draw's order and a missing or foreign part is noticed.
    """

    index: int
    count: int
    whole: str
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ValueError(f"index {self.index} is not in 1 … {self.count}")


class EngineInfo(DiskStruct, frozen=True):
    """Which engine answered, and the options it was started with."""

    kind: str
    name: str
    version: str | None
    concurrency: int | None
    options: Options


class Run(DiskStruct, frozen=True):
    """One execution. A run continues another where `differences` finds none.

    `fingerprint` is the protocol's. `fewshot_prefix` is null where each item has one of its own.
    `hardware` has at least `device` (cpu, cuda, rocm), `name` and `count`, and nothing that varies
    between two runs on one machine. `unavailable` names the checks that the suite declares this
    engine cannot feed; `policy` holds the suite's own policy values. `shard` is null unless the
    items are a part of a draw.
    """

    schema: int
    suite: str
    report_only: bool
    created: str
    plan: Plan
    protocol: Protocol
    fingerprint: str
    fewshot_prefix: str | None
    engine: EngineInfo
    model: str | None
    model_hash: str
    dtype: str
    hardware: Settings
    software: Settings
    unavailable: tuple[str, ...]
    policy: Options
    shard: Shard | None = None

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema} is not {SCHEMA}, the one this version reads")
        if self.fingerprint != self.protocol.fingerprint():
            raise ValueError("fingerprint does not belong to protocol")

    def differences(self, other: Run) -> tuple[str, ...]:
        """Return `field: ours != theirs` for all that must agree to continue a run."""
        return tuple(_differences(_identity(self), _identity(other), ""))


class Record(DiskStruct, frozen=True):
    """One arm's answer to one item.

    `text` has no stop string; `token_ids` and `margins` (top-1 minus top-2 logit) run over the
    emitted tokens. `started` and `ended` are seconds since the epoch on one clock for all arms, so
    `max(ended) - min(started)` over the records of one arm and `block` is that block's wall time.
    Two arms' blocks of one number hold the same items, except where an interruption split one: its
    rest has a number of its own, so compare times only over blocks whose item ids agree. `ttft_s`
    is seconds from `started` to the first token. `drafted` and `accepted` count this answer's draft
    tokens. `strict` and `flexible` are lm-eval's readings.
    """

    item_id: str
    arm: str
    repeat: int
    text: str | None
    token_ids: list[int] | None
    margins: list[float] | None
    finish_reason: FinishReason | None
    answer: str | None
    strict: str | None
    flexible: str | None
    outcome: Outcome
    rule: str | None
    confidence: Confidence | None
    prompt_tokens: int | None
    output_tokens: int | None
    started: float
    ended: float
    ttft_s: float | None
    block: int
    drafted: int | None
    accepted: int | None
    error: str | None

    def __post_init__(self) -> None:
        if self.text is None and self.error is None:
            raise ValueError("text is null although error is null")


class Evidence(DiskStruct, frozen=True):
    """What shows that an arm took effect; null where the engine cannot tell.

    `steps_by_kind` (steps) and `routes` (kernel names, joined by `+` where one kind met several)
    are keyed by row kind and width: `prefill`, `decode`, `verify:2` … `verify:6`.
    `accepted_per_position[i]` counts the steps in which draft i was accepted, out of `drafts`;
    `draft_length` is k as the engine ran it. `asked` and `read_back` hold the same keys.
    """

    engine_version: str | None
    backend: str | None
    graph_replays: int | None
    eager_decode_steps: int | None
    steps_by_kind: dict[str, int] | None
    routes: dict[str, str] | None
    drafts: int | None
    drafted_tokens: int | None
    accepted_per_position: list[int] | None
    draft_length: int | None
    prefix_hits: int | None
    preemptions: int | None
    asked: Settings
    read_back: Settings | None


def _identity(run: Run) -> dict[str, object]:
    fields = msgspec.to_builtins(run)
    del fields["created"], fields["fingerprint"]
    return dict(fields)


def _differences(mine: object, theirs: object, path: str) -> list[str]:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        keys = sorted(mine.keys() | theirs.keys())
        return [
            line
            for key in keys
            for line in _differences(
                mine.get(key), theirs.get(key), f"{path}.{key}" if path else str(key)
            )
        ]
    return [] if mine == theirs else [f"{path}: {_short(mine)} != {_short(theirs)}"]


def _short(value: object, limit: int = 60) -> str:
    if isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        value = [inner.get("name", inner) for inner in value]
    if isinstance(value, list | tuple) and len(value) > 8:
        return f"{len(value)} values from {value[0]!r} to {value[-1]!r}"
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"
