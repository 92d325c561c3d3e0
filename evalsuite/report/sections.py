"""The checks with their findings and limits, as reports list them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from evalsuite.checks import Finding, Status
from evalsuite.report.source import Source
from evalsuite.report.text import plain

# Which sections of the policy a check goes by.
POLICIES: dict[str, tuple[str, ...]] = {"baseline": ()}
# Figures shown elsewhere, in full.
HIDDEN = frozenset({"excerpt"})


@dataclass(frozen=True)
class Said:
    """One finding: its words, its figures by name, and the items to look at."""

    status: Status
    arm: str | None
    message: str
    figures: list[tuple[str, str]]
    examples: list[str]


@dataclass(frozen=True)
class Section:
    """One check: its gravest status, what it says, and the limits that it goes by."""

    check: str
    status: Status
    said: list[Said]
    limits: list[tuple[str, str]]


def sections_of(source: Source) -> list[Section]:
    """Return the checks in the verdict's order."""
    verdict = source.verdict
    policy = msgspec.to_builtins(verdict.policy)
    return [
        Section(
            check=check,
            status=status,
            said=[_said(one) for one in source.findings if one.check == check],
            limits=[
                (f"{section}.{key}", plain(value))
                for section in POLICIES.get(check, (check,))
                for key, value in policy.get(section, {}).items()
            ],
        )
        for check, status in verdict.checks.items()
    ]


def _said(finding: Finding) -> Said:
    figures = [(key, plain(v)) for key, v in finding.figures.items() if key not in HIDDEN]
    return Said(finding.status, finding.arm, finding.message, figures, list(finding.examples))
