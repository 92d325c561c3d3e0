"""What a verdict holds: all findings joined, and the figures behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from evalsuite.checks import Finding, Status, worst
from evalsuite.errors import EXIT_FAIL, EXIT_INCOMPLETE, EXIT_PASS
from evalsuite.localise import Localisation
from evalsuite.policy import Policy
from evalsuite.records import DiskStruct
from evalsuite.reference import Reference, accepted_arm
from evalsuite.runview import CODE, RunView
from evalsuite.stats import AccuracyDecision, Interval, wilson
from evalsuite.walls import arm_seconds, compared_with, ratios_in

SCHEMA = 1
Word = Literal["pass", "fail", "incomplete"]


class ArmFigures(DiskStruct, frozen=True):
    """One arm. Shares are of its answers; `low` and `high` are Wilson's 95 % interval of the
    accuracy. `acceptance` is the accepted share per draft position, `accepted_length` the tokens
    per verification step. `ratio` compares wall time with `ratio_to`."""

    arm: str
    answers: int
    planned: int
    outcomes: dict[str, int]
    accuracy: float | None
    low: float | None
    high: float | None
    baseline_accuracy: float | None
    acceptance: list[float] | None
    accepted_length: float | None
    wall_s: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    ratio_to: str | None


class TestFigures(DiskStruct, frozen=True):
    """One test of the accuracy family; `arm` is `mtp*` for the MTP arms together."""

    arm: str
    against: str
    drop: float
    losses: float
    gains: float
    p: float
    p_holm: float


class MarginFigures(DiskStruct, frozen=True):
    """Non-inferiority of one arm: `shown` where `upper`, the bound of its drop, is inside."""

    arm: str
    against: str
    drop: float
    upper: float
    shown: bool


class Flips(DiskStruct, frozen=True):
    """Items that an arm answers otherwise than the baseline does in most of its runs."""

    arm: str
    lost: list[str]
    gained: list[str]


class Power(DiskStruct, frozen=True):
    """What this run could have seen: smallest drops by arm (shares), and the sentence."""

    statement: str
    n: int
    detectable: dict[str, float]


class Advisory(DiskStruct, frozen=True):
    """A figure that somebody published, beside ours. Shown; never a reason."""

    arm: str
    published_accuracy: float | None
    accuracy: float | None
    published_acceptance: float | None
    published_seconds: float | None
    source: str


class Verdict(DiskStruct, frozen=True):
    """All checks joined. `checks` has the gravest status of each; `exit_code` is 0, 1 or 3.
    `localisation` says where a failed run is likely to go wrong."""

    schema: int
    verdict: Word
    exit_code: int
    report_only: bool
    suite: str
    created: str
    fingerprint: str
    model_hash: str
    dtype: str
    engine: str
    hardware_class: str
    baseline: str | None
    baseline_runs: int
    items: int
    checks: dict[str, Status]
    findings: list[Finding]
    arms: list[ArmFigures]
    tests: list[TestFigures]
    margins: list[MarginFigures]
    flips: list[Flips]
    power: Power | None
    advisories: list[Advisory]
    policy: Policy
    localisation: Localisation | None = None

    def reasons(self) -> list[Finding]:
        """Return what the verdict rests on: findings that fail, gravest check first."""
        return [f for f in self.findings if f.status in ("fail", "missing")]


def word_of(findings: Sequence[Finding]) -> Word:
    """Return the verdict that findings add up to."""
    if any(f.status == "fail" or (f.status == "missing" and not f.incomplete) for f in findings):
        return "fail"
    return "incomplete" if any(f.status == "missing" for f in findings) else "pass"


def exit_code_of(findings: Sequence[Finding], report_only: bool) -> int:
    """Return the exit code. A report-only run exits 0 unless the run itself is damaged."""
    counted = [f for f in findings if f.check == "completeness"] if report_only else findings
    codes = {"pass": EXIT_PASS, "fail": EXIT_FAIL, "incomplete": EXIT_INCOMPLETE}
    return codes[word_of(counted)]


def statuses(findings: Sequence[Finding], checks: Sequence[str]) -> dict[str, Status]:
    """Return the gravest status of each check."""
    return {name: worst([f for f in findings if f.check == name]) for name in checks}


def arm_figures(run: RunView, reference: Reference | None) -> list[ArmFigures]:
    """Return the figures of every arm, in the plan's order."""
    ratios = ratios_in(run)
    return [_arm(run, name, reference, ratios) for name in run.arms]


def _arm(
    run: RunView, name: str, reference: Reference | None, ratios: Mapping[str, Any]
) -> ArmFigures:
    arm = run.arms[name]
    answers = int((arm.outcome >= 0).sum())
    right = int(arm.correct.sum())
    between = wilson(right, answers) if answers else Interval(0.0, 0.0)
    accepted = accepted_arm(reference, name)
    evidence = arm.evidence
    rates = None
    if evidence is not None and evidence.drafts and evidence.accepted_per_position is not None:
        rates = [count / evidence.drafts for count in evidence.accepted_per_position]
    ratio = ratios.get(name)
    return ArmFigures(
        arm=name,
        answers=answers,
        planned=arm.outcome.size,
        outcomes={key: n for key, code in CODE.items() if (n := int((arm.outcome == code).sum()))},
        accuracy=right / answers if answers else None,
        low=between.low if answers else None,
        high=between.high if answers else None,
        baseline_accuracy=None if accepted is None else float(accepted.correct.mean()),
        acceptance=rates,
        accepted_length=None if rates is None else 1.0 + sum(rates),
        wall_s=arm_seconds(arm),
        ratio=None if ratio is None else ratio.ratio,
        ratio_low=None if ratio is None else ratio.low,
        ratio_high=None if ratio is None else ratio.high,
        ratio_to=compared_with(run, name),
    )


def flips_of(run: RunView, reference: Reference | None) -> list[Flips]:
    """Return the flipped items of every complete arm against the majority of accepted answers."""
    if reference is None:
        return []
    found = []
    for name, arm in run.arms.items():
        if not arm.complete or name not in reference.arms:
            continue
        ours = arm.correct.mean(axis=0)
        theirs = reference.arms[name].correct.mean(axis=0)
        lost = (theirs > 0.5) & (ours < 0.5)
        gained = (theirs < 0.5) & (ours > 0.5)
        ids = np.array(run.ids)
        found.append(Flips(arm=name, lost=ids[lost].tolist(), gained=ids[gained].tolist()))
    return found


def tests_of(decision: AccuracyDecision | None) -> list[TestFigures]:
    """Return the accuracy tests as they are written."""
    return [
        TestFigures(
            arm=test.arm,
            against=test.against,
            drop=test.pairing.drop,
            losses=test.pairing.losses,
            gains=test.pairing.gains,
            p=test.p,
            p_holm=test.p_holm,
        )
        for test in (decision.tests if decision is not None else ())
    ]


def margins_of(decision: AccuracyDecision | None) -> list[MarginFigures]:
    """Return the margins as they are written."""
    return [
        MarginFigures(arm=m.arm, against=m.against, drop=m.drop, upper=m.upper, shown=m.shown)
        for m in (decision.margins if decision is not None else ())
    ]


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict as plain values."""
    found: dict[str, Any] = msgspec.to_builtins(verdict)
    return found
