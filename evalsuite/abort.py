"""When to stop an arm during the run: the collapse check, set up from the run's baseline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evalsuite.baseline_choice import baseline_path, mismatches
from evalsuite.baseline_file import Published, read_answers, read_baseline
from evalsuite.checks import CHECKS
from evalsuite.checks.collapse import collapse_rule
from evalsuite.errors import UsageError
from evalsuite.policy import policy_from
from evalsuite.records import Run
from evalsuite.reference import from_baseline
from evalsuite.runner import StopRule


def stop_rule(run: Run, *, baseline: str | None, note: Callable[[str], None]) -> StopRule | None:
    """Return the rule that stops collapsed arms of `run`; None where no baseline tells their rate.

    What would only come out when the run is judged is told now: UsageError for a bad policy, an
    unknown check in `unavailable` or a bad baseline file; a note where the baseline will not hold.
    """
    policy = policy_from(run.policy)
    for name in run.unavailable:
        if name.partition(".")[0] not in CHECKS:
            raise UsageError(f"no check {name!r}", field="unavailable")
    if baseline == "none":
        return None
    auto = baseline in (None, "auto")
    path = baseline_path(run) if auto else Path(str(baseline))
    if auto and not path.exists():
        note(f"no baseline for {run.suite} in {run.dtype}: the run can be accepted as one")
        return None
    found = read_baseline(path)
    if isinstance(found, Published):
        return None
    differences = mismatches(run, found)
    if differences:
        note(f"the baseline will not hold: {'; '.join(differences)}")
        return None
    reference = from_baseline(path, found, read_answers(path, found), run.plan.items)
    return collapse_rule(reference, policy)
