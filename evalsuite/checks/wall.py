"""Wall time: ratios inside the run, and absolute times of the same hardware class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evalsuite.baseline_file import HardwareRun
from evalsuite.checks.finding import Finding, Status
from evalsuite.policy import Policy
from evalsuite.reference import Reference
from evalsuite.runview import RunView
from evalsuite.stats import RatioInterval
from evalsuite.walls import arm_seconds, compared_with, ratios_in

CHECK = "wall"


def wall(run: RunView, reference: Reference | None, policy: Policy) -> list[Finding]:
    """Check wall times; on a CPU whatever is wrong only warns."""
    ratios = ratios_in(run, policy.wall.level)
    found = [*_untimed(run, ratios), *_below_one(run, ratios, policy)]
    if reference is not None:
        found += _beside_accepted(run, ratios, reference, policy)
    if any(finding.status != "skipped" for finding in found):
        return found
    shown = "; ".join(
        f"{name}/{compared_with(run, name)} {one.ratio:.2f} ({one.low:.2f} to {one.high:.2f})"
        for name, one in ratios.items()
    )
    figures = {name: one._asdict() for name, one in ratios.items()}
    message = shown or "no two arms to compare"
    return [
        *found,
        Finding(check=CHECK, status="pass", arm=None, message=message, figures=figures),
    ]


def _beside_accepted(
    run: RunView, ratios: dict[str, RatioInterval], reference: Reference, policy: Policy
) -> list[Finding]:
    """Judge beside accepted runs of this hardware class and concurrency: under another load the
    arms stand in another ratio."""
    known = reference.hardware.get(run.hardware_class)
    if known is None:
        return [_skipped(f"no baseline for hardware class {run.hardware_class}")]
    at_once = run.run.engine.concurrency
    accepted = [one for one in known.runs if one.concurrency == at_once]
    if not accepted:
        return [_skipped(f"no accepted run with {at_once} requests at once on this hardware class")]
    return [*_beyond(run, ratios, accepted, policy), *_slower(run, accepted, policy)]


def _skipped(message: str) -> Finding:
    return Finding(check=CHECK, status="skipped", arm=None, message=message)


def _grave(run: RunView) -> Status:
    return "fail" if run.on_gpu else "warn"


def _untimed(run: RunView, ratios: dict[str, RatioInterval]) -> Iterator[Finding]:
    for name, arm in run.arms.items():
        other = compared_with(run, name)
        if other is None or name in ratios or not (arm.complete and run.arms[other].complete):
            continue
        if arm_seconds(arm) == 0.0:
            message = f"the records of {name} hold no times"
            yield Finding(
                check=CHECK, status="missing", arm=name, message=message, evidence="times"
            )
        else:
            message = f"{name} and {other} share fewer than two blocks: no ratio can be told"
            yield Finding(check=CHECK, status="warn", arm=name, message=message)


def _below_one(run: RunView, ratios: dict[str, RatioInterval], policy: Policy) -> Iterator[Finding]:
    found = ratios.get("mtp5")
    if found is None or not run.on_gpu or found.ratio < policy.wall.mtp5_below:
        return
    message = f"mtp5 takes {found.ratio:.2f} of graph's time, not below {policy.wall.mtp5_below:g}"
    yield Finding(check=CHECK, status="fail", arm="mtp5", message=message, figures=found._asdict())


def _beyond(
    run: RunView, ratios: dict[str, RatioInterval], accepted: list[HardwareRun], policy: Policy
) -> Iterator[Finding]:
    for name, found in ratios.items():
        known = [one.ratios[name] for one in accepted if name in one.ratios]
        if not known:
            continue
        limit = max(known) * (1.0 + policy.wall.tolerance)
        other = compared_with(run, name)
        if other is None or found.low <= limit:
            continue
        # Blocks of a long run take a while to sum up: only where it matters.
        if arm_seconds(run.arms[other]) * (found.ratio - limit) >= policy.wall.excess:
            yield Finding(
                check=CHECK,
                status=_grave(run),
                arm=name,
                message=f"{name} takes {found.ratio:.2f} of {other}'s time "
                f"({found.low:.2f} to {found.high:.2f}), beyond {limit:.2f}: the accepted runs "
                f"took {min(known):.2f} to {max(known):.2f}",
                figures={**found._asdict(), "limit": limit, "accepted": known},
            )


def _slower(run: RunView, accepted: list[HardwareRun], policy: Policy) -> Iterator[Finding]:
    """Absolute times, only against runs of as many answers, and of arms that take long enough."""
    answers = run.run.plan.repeats * len(run.ids)
    if all(one.answers != answers for one in accepted):
        yield _skipped(f"absolute times: no accepted run of {answers} answers at this concurrency")
    for name, arm in run.arms.items():
        known = [
            one.seconds[name]
            for one in accepted
            if name in one.seconds and one.answers == arm.outcome.size
        ]
        if not known or not arm.complete:
            continue
        seconds, expected = arm_seconds(arm), float(np.median(known))
        if expected >= policy.wall.shortest and seconds > policy.wall.slower * expected:
            yield Finding(
                check=CHECK,
                status=_grave(run),
                arm=name,
                message=f"{name} took {seconds:.1f} s, the accepted runs {expected:.1f} s: more "
                f"than {policy.wall.slower:g} times as long",
                figures={"seconds": seconds, "expected": expected},
            )
