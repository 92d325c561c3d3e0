"""What stands at the top of every report: the verdict in one sentence, and why."""

from __future__ import annotations

from dataclasses import dataclass

from evalsuite.checks import Finding, Status
from evalsuite.report.source import Source
from evalsuite.report.text import counted
from evalsuite.verdict import Verdict

# What a check says of its own matters before what follows from it.
LEADING = ("degeneration", "collapse", "completeness", "route", "acceptance")


@dataclass(frozen=True)
class Reason:
    """Why a verdict is as it is: one check's first finding, and how many more it has."""

    check: str
    status: Status
    message: str
    more: int


@dataclass(frozen=True)
class Exhibit:
    """The answer that a report opens at: where a degenerate one was seen first."""

    arm: str
    item: str
    rules: str
    excerpt: str


@dataclass(frozen=True)
class Headline:
    """The verdict's word, its sentence, and the reasons, gravest first."""

    word: str
    sentence: str
    reasons: list[Reason]
    exhibit: Exhibit | None


def headline_of(source: Source) -> Headline:
    """Return what stands at the top of a judged run's report."""
    verdict = source.verdict
    return Headline(
        word=verdict.verdict,
        sentence=sentence_of(verdict),
        reasons=reasons_of(verdict),
        exhibit=exhibit_of(verdict),
    )


def sentence_of(verdict: Verdict) -> str:
    """Return the verdict in one sentence."""
    reasons = reasons_of(verdict)
    grave = [reason for reason in reasons if reason.status in ("fail", "missing")]
    note = " This suite is report-only and does not gate." if verdict.report_only else ""
    if grave:
        return f"{_broken(verdict, grave)}{note}"
    scope = f"{counted(len(verdict.arms), 'arm')} over {counted(verdict.items, 'item')}"
    held = "the baseline" if verdict.baseline is not None else "each other (no baseline was used)"
    warned = sum(1 + reason.more for reason in reasons)
    warnings = f", with {counted(warned, 'warning')}" if warned else ""
    return f"No regression found in {scope}, held against {held}{warnings}.{note}"


def reasons_of(verdict: Verdict) -> list[Reason]:
    """Return one reason for each check that fails, misses something or warns."""
    found = []
    for statuses in (("fail",), ("missing",), ("warn",)):
        for check in _by_weight(verdict):
            same = [f for f in verdict.findings if f.check == check and f.status in statuses]
            if same:
                found.append(Reason(check, same[0].status, same[0].message, len(same) - 1))
    return found


def exhibit_of(verdict: Verdict) -> Exhibit | None:
    """Return the first degenerate answer of high confidence, in the order of the arms."""
    for finding in verdict.findings:
        if finding.check == "degeneration" and finding.status == "fail" and _shows(finding):
            figures = finding.figures
            return Exhibit(
                arm=finding.arm or "",
                item=str(figures["item"]),
                rules=", ".join(figures.get("rules", {})),
                excerpt=str(figures["excerpt"]),
            )
    return None


def _broken(verdict: Verdict, grave: list[Reason]) -> str:
    names = [reason.check for reason in grave]
    failed = list(dict.fromkeys(names))
    listed = failed[0] if len(failed) == 1 else f"{', '.join(failed[:-1])} and {failed[-1]}"
    total = f"{len(failed)} of {counted(len(verdict.checks), 'check')}"
    if verdict.verdict == "incomplete":
        which = "check" if len(failed) == 1 else "checks"
        return f"Undecided: the {which} {listed} could not be carried out ({total})."
    verb = "does" if len(failed) == 1 else "do"
    return f"{listed[0].upper()}{listed[1:]} {verb} not hold ({total})."


def _by_weight(verdict: Verdict) -> list[str]:
    first = [check for check in LEADING if check in verdict.checks]
    return [*first, *(check for check in verdict.checks if check not in first)]


def _shows(finding: Finding) -> bool:
    return "item" in finding.figures and "excerpt" in finding.figures
