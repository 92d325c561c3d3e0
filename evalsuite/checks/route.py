"""Route: proof that the arm took effect, from graphs, steps, kernels and the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from evalsuite.checks.finding import Finding
from evalsuite.policy import Policy
from evalsuite.records import Evidence
from evalsuite.reference import Reference
from evalsuite.runview import ArmView, RunView

CHECK = "route"


def route(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Check the evidence of every arm against what the arm is, and its kernels against the
    baseline's of the same hardware class."""
    found = [finding for arm in run.arms.values() for finding in _arm(arm, policy)]
    accepted = None if reference is None else reference.hardware.get(run.hardware_class)
    if reference is not None and accepted is None:
        found.append(
            Finding(
                check=CHECK,
                status="skipped",
                arm=None,
                message=f"kernel routes: no baseline for hardware class {run.hardware_class}",
            )
        )
    if accepted is not None:
        for name, routes in accepted.routes.items():
            if name in run.arms:
                found += _kernels(run.arms[name], routes, accepted.routes)
    if any(finding.status != "skipped" for finding in found):
        return found
    message = "every arm ran as it was asked to"
    return [*found, Finding(check=CHECK, status="pass", arm=None, message=message)]


def _arm(arm: ArmView, policy: Policy) -> Iterator[Finding]:
    evidence = arm.evidence
    if evidence is None:
        yield _missing(arm, "evidence", f"{arm.name} has no evidence of what ran")
        return
    yield from _graphs(arm, evidence, policy)
    yield from _rows(arm, evidence)
    yield from _configuration(arm, evidence)
    k = arm.arm.mtp
    if k and evidence.draft_length is None:
        yield _missing(arm, "draft_length", f"{arm.name} does not tell its draft length")
    elif (evidence.draft_length or 0) != k:
        message = f"{arm.name} drafted {evidence.draft_length or 0} tokens a step, not {k}"
        yield _fail(arm, message, draft_length=evidence.draft_length)


def _graphs(arm: ArmView, evidence: Evidence, policy: Policy) -> Iterator[Finding]:
    for field in ("graph_replays", "eager_decode_steps"):
        if getattr(evidence, field) is None:
            yield _missing(arm, field, f"the evidence of {arm.name} does not tell {field}")
    replays, eager = evidence.graph_replays, evidence.eager_decode_steps
    if arm.arm.graph:
        if replays == 0:
            yield _fail(arm, f"{arm.name} replayed no graph", graph_replays=0)
        limit = policy.route.max_eager_decode_steps
        if eager is not None and eager > limit:
            message = f"{arm.name} fell back to eager decode {eager} times ({limit} allowed)"
            yield _fail(arm, message, eager_decode_steps=eager)
        return
    if replays:
        yield _fail(arm, f"{arm.name} replayed {replays} graphs", graph_replays=replays)
    if eager == 0:
        yield _fail(arm, f"{arm.name} ran no eager decode step", eager_decode_steps=0)


def _rows(arm: ArmView, evidence: Evidence) -> Iterator[Finding]:
    steps, routes = evidence.steps_by_kind, evidence.routes
    for field in ("steps_by_kind", "routes"):
        if getattr(evidence, field) is None:
            yield _missing(arm, field, f"the evidence of {arm.name} does not tell {field}")
    if steps is not None:
        yield from _widths(arm, steps)
    if steps is not None and routes is not None:
        for kind, count in steps.items():
            if count > 0 and not routes.get(kind):
                message = f"{arm.name} ran {kind} rows, but names no kernel for them"
                yield _missing(arm, "routes", message)


def _widths(arm: ArmView, steps: Mapping[str, int]) -> Iterator[Finding]:
    verified = {kind: count for kind, count in steps.items() if kind.startswith("verify:")}
    k = arm.arm.mtp
    wide = max((int(kind.partition(":")[2]) for kind in verified if verified[kind] > 0), default=0)
    if k and not verified:
        yield _missing(arm, "steps_by_kind", f"{arm.name} does not tell its verification steps")
    elif k and wide != k + 1:
        message = f"{arm.name} verified rows of width {wide} at most, not {k + 1}"
        yield _fail(arm, message, steps_by_kind=dict(steps))
    elif not k and wide:
        yield _fail(arm, f"{arm.name} verified drafts of width {wide}", steps_by_kind=dict(steps))


def _configuration(arm: ArmView, evidence: Evidence) -> Iterator[Finding]:
    if evidence.read_back is None:
        yield _missing(arm, "read_back", f"{arm.name} was not asked for its configuration")
        return
    if not evidence.asked:
        yield _missing(arm, "asked", f"{arm.name} does not tell what configuration was asked for")
    for key, asked in sorted(evidence.asked.items()):
        if key not in evidence.read_back:
            yield _missing(arm, "read_back", f"{arm.name} does not tell {key} as it runs")
        elif evidence.read_back[key] != asked:
            message = f"{arm.name} runs with {key} = {evidence.read_back[key]!r}, not {asked!r}"
            yield _fail(arm, message, key=key, asked=asked, read_back=evidence.read_back[key])


def _kernels(
    arm: ArmView, accepted: Mapping[str, str], everywhere: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    routes = arm.evidence.routes if arm.evidence is not None else None
    for kind, kernel in sorted((routes or {}).items()):
        expected = accepted.get(kind)
        if expected is None:
            # A rare row kind may have met no step of this arm in the accepted runs.
            others = {other[kind] for other in everywhere.values() if kind in other}
            expected = kernel if kernel in others else None
        if expected is None:
            message = f"{arm.name} sent {kind} rows to {kernel}; the baseline names no kernel"
            finding = _fail(arm, message, kind=kind, kernel=kernel)
            yield finding
        elif expected != kernel:
            message = f"{arm.name} sent {kind} rows to {kernel}, the baseline's route is {expected}"
            yield _fail(arm, message, kind=kind, kernel=kernel, expected=expected)


def _fail(arm: ArmView, message: str, **figures: object) -> Finding:
    return Finding(check=CHECK, status="fail", arm=arm.name, message=message, figures=figures)


def _missing(arm: ArmView, field: str, message: str) -> Finding:
    return Finding(
        check=CHECK,
        status="missing",
        arm=arm.name,
        message=message,
        evidence=field,
        incomplete=not arm.finished,
    )
