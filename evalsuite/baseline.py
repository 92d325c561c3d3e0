"""Accepting runs as a baseline, showing one, and telling what a run flips against it."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import RenderableType

from evalsuite.baseline_choice import Chosen, baseline_path, choose, mismatches
from evalsuite.baseline_file import (
    SCHEMA,
    Accept,
    AcceptedRun,
    ArmFigures,
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
from evalsuite.errors import EXIT_PASS, UsageError
from evalsuite.judge import verdict_on
from evalsuite.paths import BASELINES
from evalsuite.policy import Policy, policy_for
from evalsuite.reference import from_baseline
from evalsuite.runload import load_run
from evalsuite.runview import RunView, restricted
from evalsuite.show import table_of
from evalsuite.stats import flip_rate
from evalsuite.verdict import Flips, Verdict, flips_of


@dataclass(frozen=True)
class Shown:
    """What a baseline command has to show; its exit code is 0."""

    data: dict[str, Any]
    parts: list[RenderableType]
    exit_code: int = EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return self.data

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        return self.parts


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
    failing = _failing(run, path, old, answers, folder, replace)
    if failing and not force:
        listed = "\n  ".join(failing)
        raise UsageError(f"is not accepted without --force:\n  {listed}", file=folder)
    run = restricted(run, common_items(run, folder))
    kept = None if replace else old
    if kept is not None:
        _require_fit(run, kept, answers, folder)
    baseline = _grown(run, kept, old, failing, why, who)
    rows = grown_answers(run, {} if kept is None else answers)
    write_baseline(path, baseline, rows)
    return _described(path, baseline, rows, f"accepted {folder} into {path}")


def show_baseline(name: str, *, root: Path = BASELINES) -> Shown:
    """Show a baseline: a file, `<suite>/<dtype>`, or a suite with one dtype.

    Raises UsageError where there is none, or more than one.
    """
    path = _named(name, root)
    found = read_baseline(path)
    if isinstance(found, Published):
        return _published(path, found)
    return _described(path, found, list(read_answers(path, found).values()), str(path))


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
    return Shown({"flips": msgspec.to_builtins(flips)}, [_flip_table(flips)])


def _existing(path: Path) -> tuple[Baseline | None, dict[str, ItemAnswers]]:
    if not path.exists():
        return None, {}
    found = read_baseline(path)
    if isinstance(found, Published):
        raise UsageError("holds published figures; move it before accepting runs", file=path)
    return found, read_answers(path, found)


def _failing(
    run: RunView,
    path: Path,
    old: Baseline | None,
    answers: dict[str, ItemAnswers],
    folder: Path,
    replace: bool,
) -> list[str]:
    """Say why a run is not fit to be accepted; one line a reason."""
    fits = old is not None and not mismatches(run.run, old) and set(run.ids) <= set(answers)
    chosen = Chosen(path, old, answers) if fits and not replace else Chosen(asked_none=True)
    policy: Policy = policy_for(run.run, None, folder)
    verdict: Verdict = verdict_on(run, chosen, policy)
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


def _grown(
    run: RunView,
    kept: Baseline | None,
    old: Baseline | None,
    failing: Sequence[str],
    why: str,
    who: str | None,
) -> Baseline:
    added = accepted_run(run)
    runs = [*([] if kept is None else kept.runs), added]
    accept = Accept(
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        who=who or getpass.getuser(),
        why=why.strip(),
        digest=added.digest,
        forced=bool(failing),
        failing=list(failing),
        replaced=old is not None and kept is None,
        old={} if old is None else _accuracies(old.runs),
        new=_accuracies(runs),
    )
    hardware: Mapping[str, HardwareClass] = {} if kept is None else kept.hardware
    return Baseline(
        schema=SCHEMA,
        suite=run.run.suite,
        dtype=run.run.dtype,
        protocol=run.run.protocol,
        fingerprint=run.run.fingerprint,
        model_hash=run.run.model_hash,
        items=len(run.ids),
        runs=runs,
        hardware=grown_hardware(run, hardware),
        history=[*([] if old is None else old.history), accept],
    )


def _accuracies(runs: Sequence[AcceptedRun]) -> dict[str, float]:
    arms: dict[str, list[ArmFigures]] = {}
    for one in runs:
        for name, figures in one.arms.items():
            arms.setdefault(name, []).append(figures)
    return {n: sum(f.accuracy for f in figures) / len(figures) for n, figures in arms.items()}


def _named(name: str, root: Path) -> Path:
    if name.endswith(".json"):
        return Path(name)
    if (root / f"{name}.json").exists():
        return root / f"{name}.json"
    there = sorted((root / name).glob("*.json"))
    if len(there) == 1:
        return there[0]
    listed = ", ".join(f"{name}/{one.stem}" for one in there) or "none"
    raise UsageError(f"which baseline? there are: {listed}", field=name)


def _described(path: Path, baseline: Baseline, rows: Sequence[ItemAnswers], title: str) -> Shown:
    accuracies = _accuracies(baseline.runs)
    flips = {name: _flips(name, rows) for name in accuracies}
    table = table_of(
        ["arm", "accuracy", "flip rate"],
        [
            [name, f"{value:.2%}", "-" if flips[name] is None else f"{flips[name]:.2%}"]
            for name, value in accuracies.items()
        ],
    )
    last = baseline.history[-1]
    lines = [
        f"{len(baseline.runs)} runs over {baseline.items} items, protocol {baseline.fingerprint}",
        f"hardware: {', '.join(baseline.hardware) or 'none'}",
        f"last accepted {last.when} by {last.who}: {last.why}{' (forced)' if last.forced else ''}",
    ]
    data = {
        "path": str(path),
        "accuracy": accuracies,
        "flip_rate": flips,
        "baseline": msgspec.to_builtins(baseline),
    }
    return Shown(data, [title, table, *lines])


def _flips(name: str, rows: Sequence[ItemAnswers]) -> float | None:
    if len(rows[0].arms[name]) < 2:
        return None
    right = [[cell.outcome == "correct" for cell in row.arms[name]] for row in rows]
    return flip_rate(list(zip(*right, strict=True)))


def _published(path: Path, found: Published) -> Shown:
    rows = [
        [
            name,
            *(
                "-" if v is None else t.format(v)
                for v, t in (
                    (arm.accuracy, "{:.2%}"),
                    (arm.seconds, "{:.1f} s"),
                    (arm.acceptance, "{:.1%}"),
                )
            ),
        ]
        for name, arm in found.arms.items()
    ]
    table = table_of(["arm", "accuracy", "wall", "acceptance"], rows)
    note = f"published figures, advisory only: {found.source} ({found.hardware}). {found.note}"
    return Shown({"path": str(path), "published": msgspec.to_builtins(found)}, [table, note])


def _flip_table(flips: Sequence[Flips]) -> RenderableType:
    rows = [
        [one.arm, str(len(one.lost)), str(len(one.gained)), " ".join(one.lost[:10])]
        for one in flips
    ]
    return table_of(["arm", "lost", "gained", "lost items"], rows)
