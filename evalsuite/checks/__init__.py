"""The checks: each a function (run, baseline, policy) -> findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evalsuite.checks.acceptance import acceptance
from evalsuite.checks.accuracy import accuracy
from evalsuite.checks.collapse import collapse
from evalsuite.checks.completeness import completeness
from evalsuite.checks.degeneration import degeneration
from evalsuite.checks.equality import equality
from evalsuite.checks.finding import Finding, Status, worst
from evalsuite.checks.route import route
from evalsuite.checks.truncation import truncation
from evalsuite.checks.wall import wall
from evalsuite.policy import Policy
from evalsuite.reference import Reference
from evalsuite.runview import RunView

Check = Callable[[RunView, Reference | None, Policy], list[Finding]]

CHECKS: Mapping[str, Check] = {
    "completeness": completeness,
    "truncation": truncation,
    "collapse": collapse,
    "accuracy": accuracy,
    "degeneration": degeneration,
    "equality": equality,
    "acceptance": acceptance,
    "route": route,
    "wall": wall,
}

__all__ = ["CHECKS", "Check", "Finding", "Status", "worst"]
