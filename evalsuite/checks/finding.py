"""What a check says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from evalsuite.records import DiskStruct

Status = Literal["pass", "warn", "fail", "missing", "skipped"]
# From harmless to grave.
ORDER: tuple[Status, ...] = ("pass", "skipped", "warn", "missing", "fail")

Figures = dict[str, Any]


class Finding(DiskStruct, frozen=True):
    """One statement of one check.

    `arm` is None where it concerns the whole run. `figures` are the numbers behind the message,
    `examples` item ids to look at, gravest first. `missing` counts as a failure, except where
    `incomplete` is set: then the arm has not been run to its end, or there is no baseline yet.
    `evidence` names what is missing, so that a suite can declare it unavailable.
    """

    check: str
    status: Status
    arm: str | None
    message: str
    figures: Figures = msgspec.field(default_factory=dict)
    examples: list[str] = msgspec.field(default_factory=list)
    evidence: str | None = None
    incomplete: bool = False


def worst(findings: Sequence[Finding]) -> Status:
    """Return the gravest status; `pass` where there is no finding."""
    return max((f.status for f in findings), key=ORDER.index, default="pass")


def some(items: Sequence[str], limit: int = 10) -> list[str]:
    """Return the first `limit` item ids."""
    return list(items[:limit])
