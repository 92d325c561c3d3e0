"""Accepting runs as a baseline, and telling what a run flips against one."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from evalsuite.baseline_choice import Chosen, baseline_path, choose, mismatches
from evalsuite.baseline_file import (
    SCHEMA,
    Accept,
    AcceptedRun,
    Baseline,
    HardwareClass,
    ItemAnswers,
    Published,
    read_answers,
    read_baseline,
    write_baseline,
)
from evalsuite.baseline_reduce import (
    accepted_run,
    common_items,
    digest_of_run,
    grown_answers,
    grown_hardware,
)
from evalsuite.baseline_show import Shown, accuracies, described, flip_table, show_baseline
from evalsuite.errors import UsageError
from evalsuite.judge import verdict_on
from evalsuite.paths import BASELINES
from evalsuite.policy import Policy, policy_for
from evalsuite.reference import from_baseline
from evalsuite.runload import load_run
from evalsuite.runview import RunView, restricted
from evalsuite.verdict import flips_of

__all__ = ["accept_baseline", "diff_baseline", "show_baseline"]


def accept_baseline(
    folder: Path,
    why: str,
    *,
    who: str | None = None,
    force: bool = False,
    replace: bool = False,
    root: Path = BASELINES,
) -> Shown:
    """Make the run at `folder` part of the baseline of its suite and dtype.

    The run joins those accepted before; `replace` drops them (after a change of model, protocol,
    items or arms it is needed). `force` takes a run that fails or lacks answers, and the history
    says so. Raises UsageError, with nothing written, where the run is not acceptable as asked.
    """
    if not why.strip():
        raise UsageError("a reason is needed", field="why")
    run = load_run(folder)
    path = baseline_path(run.run, root)
    old, answers = _existing(path)
    policy = policy_for(run.run, None, folder)
    failing = _failing(run, policy, None if replace else old, path, answers)
    if failing and not force:
        listed = "\n  ".join(failing)
        raise UsageError(f"is not accepted without --force:\n  {listed}", file=folder)
    run = restricted(run, common_items(run, folder))
    kept = None if replace else old
    if kept is not None:
        _require_fit(run, kept, answers, folder)
    added = accepted_run(run, policy.equality)
    baseline = _grown(run, added, kept, old, _accept(added, kept, old, failing, why, who))
    rows = grown_answers(run, {} if kept is None else answers)
    write_baseline(path, baseline, rows)
    return described(path, baseline, rows, f"accepted {folder} into {path}")


def diff_baseline(folder: Path, *, baseline: str | None = None, root: Path = BASELINES) -> Shown:
    """Show which items a run answers otherwise than its baseline, by arm.

    Raises UsageError where there is no baseline, or it does not belong to the run.
    """
    run = load_run(folder)
    chosen = choose(run, baseline, root)
    if chosen.baseline is None or chosen.answers is None or chosen.path is None:
        raise UsageError("there is no baseline with answers to compare with", file=chosen.path)
    wrong = mismatches(run.run, chosen.baseline)
    if wrong:
        raise UsageError("; ".join(wrong), file=chosen.path)
    known = [one for one in run.ids if one in chosen.answers]
    if not known:
        raise UsageError("no item of the run is in the baseline", file=chosen.path)
    run = restricted(run, known)
    reference = from_baseline(chosen.path, chosen.baseline, chosen.answers, run.ids)
    flips = flips_of(run, reference)
    return Shown({"flips": msgspec.to_builtins(flips)}, [flip_table(flips)])


def _existing(path: Path) -> tuple[Baseline | None, dict[str, ItemAnswers]]:
    if not path.exists():
        return None, {}
    found = read_baseline(path)
    if isinstance(found, Published):
        raise UsageError("holds published figures; move it before accepting runs", file=path)
    return found, read_answers(path, found)


def _failing(
    run: RunView,
    policy: Policy,
    old: Baseline | None,
    path: Path,
    answers: dict[str, ItemAnswers],
) -> list[str]:
    """Say why a run is not fit to be accepted; one line a reason."""
    fits = old is not None and not mismatches(run.run, old) and set(run.ids) <= set(answers)
    chosen = Chosen(path, old, answers) if fits else Chosen(asked_none=True)
    verdict = verdict_on(run, chosen, policy)
    return [f"{finding.check}: {finding.message}" for finding in verdict.reasons()]


def _require_fit(
    run: RunView, old: Baseline, answers: Mapping[str, ItemAnswers], folder: Path
) -> None:
    wrong = mismatches(run.run, old)
    if set(run.arms) != set(old.runs[0].arms):
        wrong.append(f"arms {', '.join(run.arms)} are not {', '.join(old.runs[0].arms)}")
    if set(run.ids) != set(answers):
        wrong.append(f"{len(run.ids)} items are not the {len(answers)} of the baseline")
    if any(digest_of_run(run) == one.digest for one in old.runs):
        wrong.append("this run has been accepted before")
    if wrong:
        listed = "\n  ".join(wrong)
        raise UsageError(
            f"does not join the baseline; --replace starts it anew:\n  {listed}", file=folder
        )


def _accept(
    added: AcceptedRun,
    kept: Baseline | None,
    old: Baseline | None,
    failing: Sequence[str],
    why: str,
    who: str | None,
) -> Accept:
    return Accept(
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        who=who or getpass.getuser(),
        why=why.strip(),
        digest=added.digest,
        forced=bool(failing),
        failing=list(failing),
        replaced=old is not None and kept is None,
        old={} if old is None else accuracies(old.runs),
        new=accuracies([*([] if kept is None else kept.runs), added]),
    )


def _grown(
    run: RunView, added: AcceptedRun, kept: Baseline | None, old: Baseline | None, accept: Accept
) -> Baseline:
    hardware: Mapping[str, HardwareClass] = {} if kept is None else kept.hardware
    return Baseline(
        schema=SCHEMA,
        suite=run.run.suite,
        dtype=run.run.dtype,
        protocol=run.run.protocol,
        fingerprint=run.run.fingerprint,
        model_hash=run.run.model_hash,
        items=len(run.ids),
        runs=[*([] if kept is None else kept.runs), added],
        hardware=grown_hardware(run, hardware),
        history=[*([] if old is None else old.history), accept],
    )
