"""Arms: the ways to run one model that are compared with each other."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from evalsuite.errors import UsageError

MAX_DRAFTS = 5

_NAME = re.compile(r"(?:(eager|graph)(?:-mtp(\d+))?|mtp(\d+))")


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to run the model.

    `graph`: decode runs as captured graphs. `mtp`: drafts per step, 0 for no speculation.
    """

    name: str
    graph: bool
    mtp: int

    def __post_init__(self) -> None:
        if not 0 <= self.mtp <= MAX_DRAFTS:
            raise ValueError(f"an arm drafts 0 to {MAX_DRAFTS} tokens a step, not {self.mtp}")


STANDARD_ARMS: tuple[Arm, ...] = (
    Arm("eager", False, 0),
    Arm("graph", True, 0),
    *(Arm(f"mtp{k}", True, k) for k in range(1, MAX_DRAFTS + 1)),
)


def parse_arm(name: str) -> Arm:
    """Return the arm that `name` stands for: `eager`, `graph`, `mtp3`, `eager-mtp1`, `graph-mtp2`.

    `mtpK` and `graph-mtpK` run the same way (full graph with K drafts) under their own names.
    Raises UsageError for any other name and for K outside 1..5.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            f"{name!r} is no arm; arms are eager, graph, mtp1 to mtp{MAX_DRAFTS}, "
            f"eager-mtp1 to eager-mtp{MAX_DRAFTS}",
            field="arms",
        )
    mode, mixed, plain = match.groups()
    digits = mixed or plain
    drafts = int(digits) if digits is not None else 0
    if digits is not None and not 1 <= drafts <= MAX_DRAFTS:
        raise UsageError(
            f"{name!r} drafts {drafts} tokens; 1 to {MAX_DRAFTS} can be asked for", field="arms"
        )
    return Arm(name, mode != "eager", drafts)


def parse_arms(names: Iterable[str]) -> tuple[Arm, ...]:
    """Return the arms of `names` in order. Raises UsageError for none, or one named twice."""
    arms = tuple(parse_arm(name) for name in names)
    if not arms:
        raise UsageError("at least one arm is needed", field="arms")
    seen: set[str] = set()
    for arm in arms:
        if arm.name in seen:
            raise UsageError(f"{arm.name!r} is named twice", field="arms")
        seen.add(arm.name)
    return arms


def reference_arms(arm: Arm) -> tuple[Arm, ...]:
    """Return the standard arms that `arm` is compared with, `arm` last.

    A graph arm is read against `eager` (answers); an MTP arm against `eager` and `graph` (time).
    """
    eager, graph = STANDARD_ARMS[0], STANDARD_ARMS[1]
    if arm.mtp and arm.graph:
        return (eager, graph, arm)
    return (eager, arm) if arm.name != "eager" else (arm,)
