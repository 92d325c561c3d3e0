"""The judge: a run folder, a baseline and a policy in, a verdict out. Reads files, nothing else.

verdict = judge(load_run(folder), choose_baseline(run, "auto"), policy)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType

from evalsuite.baseline_choice import Chosen, choose, matched
from evalsuite.checks import CHECKS, Finding
from evalsuite.checks.accuracy import decide, power_statement_of
from evalsuite.errors import DamagedRun, UsageError
from evalsuite.localise import localise
from evalsuite.policy import Policy, policy_for
from evalsuite.reference import Reference
from evalsuite.runload import load_run
from evalsuite.runview import RunView
from evalsuite.show import verdict_renderables
from evalsuite.storage import write_struct
from evalsuite.verdict import (
    SCHEMA,
    Power,
    Verdict,
    arm_figures,
    as_json,
    exit_code_of,
    flips_of,
    margins_of,
    statuses,
    tests_of,
    word_of,
)

BASELINE = "baseline"
NAMES = (BASELINE, *CHECKS)


@dataclass(frozen=True)
class JudgeResult:
    """A verdict with what a command has to show of it."""

    folder: Path
    verdict: Verdict

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 incomplete."""
        return self.verdict.exit_code

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {"run": str(self.folder), **as_json(self.verdict)}

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        return verdict_renderables(self.verdict)


def judge_run(
    folder: Path, *, baseline: str | None = None, policy: Path | None = None
) -> JudgeResult:
    """Judge the run at `folder` and write its verdict.json.

    `baseline` is `auto` (as None), `none` or a baseline file; `policy` a policy file that takes the
    place of the run's own. Raises UsageError for a bad baseline or policy file, DamagedRun where
    the run cannot be read at all.
    """
    verdict = judge(folder, baseline, policy)
    write_struct(folder / "verdict.json", verdict)
    return JudgeResult(folder, verdict)


def judge(folder: Path, baseline: str | None = None, policy: Path | None = None) -> Verdict:
    """Judge the run at `folder` without writing anything; see `judge_run`."""
    run = load_run(folder)
    return verdict_on(run, choose(run, baseline), policy_for(run.run, policy, folder))


def verdict_on(run: RunView, chosen: Chosen, policy: Policy) -> Verdict:
    """Apply all checks to a run. The result depends on the arguments' content alone."""
    findings, reference = matched(run, chosen)
    for check in CHECKS.values():
        findings += check(run, reference, policy)
    findings = excused(findings, run.run.unavailable)
    decision = decide(run, reference, policy)
    power = None
    if decision is not None and decision.detectable:
        power = Power(
            statement=power_statement_of(decision),
            n=decision.n,
            detectable=dict(decision.detectable),
        )
    return Verdict(
        schema=SCHEMA,
        verdict=word_of(findings),
        exit_code=exit_code_of(findings, run.run.report_only),
        report_only=run.run.report_only,
        suite=run.run.suite,
        created=run.run.created,
        fingerprint=run.run.fingerprint,
        model_hash=run.run.model_hash,
        dtype=run.run.dtype,
        engine=run.run.engine.name,
        hardware_class=run.hardware_class,
        baseline=None if reference is None else reference.name,
        baseline_runs=_units(reference),
        items=len(run.ids),
        checks=statuses(findings, NAMES),
        findings=findings,
        arms=arm_figures(run, reference),
        tests=tests_of(decision),
        margins=margins_of(decision),
        flips=flips_of(run, reference),
        power=power,
        advisories=chosen.advisories(run),
        policy=policy,
        localisation=localise(run, reference, findings, policy),
    )


def excused(findings: Sequence[Finding], unavailable: Sequence[str]) -> list[Finding]:
    """Turn `missing` into `skipped` where the suite declares that its engine cannot tell.

    `unavailable` holds names of checks, or `check.evidence` for one piece of evidence. Raises
    UsageError for a check that does not exist.
    """
    for name in unavailable:
        if name.partition(".")[0] not in CHECKS:
            raise UsageError(f"no check {name!r}", field="unavailable")
    # What is missing because records or files are missing cannot be declared away.
    return [
        msgspec.structs.replace(f, status="skipped", message=f"{f.message} (declared by the suite)")
        if f.status == "missing"
        and f.evidence is not None
        and not f.incomplete
        and (f.check in unavailable or f"{f.check}.{f.evidence}" in unavailable)
        else f
        for f in findings
    ]


def read_verdict(folder: Path) -> Verdict:
    """Read the verdict.json of a run. Raises DamagedRun where it is missing or wrong."""
    from evalsuite.storage import read_file

    if not (folder / "verdict.json").exists():
        raise DamagedRun("has not been judged: run `evalsuite judge` first", file=folder)
    return read_file(folder / "verdict.json", Verdict)


def _units(reference: Reference | None) -> int:
    return 0 if reference is None else reference.units
