"""Where a run comes from, how to make it again, and what differs around the baseline's."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from evalsuite.arms import STANDARD_ARMS
from evalsuite.errors import UsageError
from evalsuite.paths import EMBEDDED_MODEL
from evalsuite.records import Run, Settings
from evalsuite.report.source import Source
from evalsuite.report.text import counted, plain
from evalsuite.suite import suite_path

Pair = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """One setting that is not what it was in the last accepted run."""

    name: str
    run: str
    baseline: str


@dataclass(frozen=True)
class Provenance:
    """Groups of named values; `baseline` is empty where `no_baseline` says why."""

    run: list[Pair]
    protocol: list[Pair]
    environment: list[Pair]
    baseline: list[Pair]
    no_baseline: str | None
    differences: list[Difference]
    command: str
    command_note: str
    prefix: str | None


def provenance_of(source: Source) -> Provenance:
    """Return the provenance of a run and of the baseline it was held against."""
    run = source.view.run
    command, note = reproduce(run)
    return Provenance(
        run=_run(source),
        protocol=_protocol(run),
        environment=_environment(run),
        baseline=_baseline(source),
        no_baseline=source.no_baseline,
        differences=differences_of(source),
        command=command,
        command_note=note,
        prefix=run.fewshot_prefix,
    )


def differences_of(source: Source) -> list[Difference]:
    """Return what differs in engine, hardware and software from the last accepted run."""
    if source.baseline is None:
        return []
    run, last = source.view.run, source.baseline.runs[-1]
    pairs: list[tuple[str, object, object]] = [
        ("engine", run.engine.name, last.engine),
        ("engine version", run.engine.version, last.engine_version),
        *_joined("hardware", run.hardware, last.hardware),
        *_joined("software", run.software, last.software),
    ]
    return [Difference(name, plain(a), plain(b)) for name, a, b in pairs if a != b]


def _joined(group: str, ours: Settings, theirs: Settings) -> list[tuple[str, object, object]]:
    return [(f"{group}: {key}", ours.get(key), theirs.get(key)) for key in sorted({*ours, *theirs})]


def commit_of(software: Settings) -> str:
    """Return the commit and whether the tree had changes, or why they are not known."""
    commit = software.get("commit")
    if commit is None:
        return "missing: the run was not made from a git checkout"
    dirty = software.get("dirty")
    told = {True: "with uncommitted changes", False: "clean"}.get(
        dirty if isinstance(dirty, bool) else None,  # type: ignore[arg-type]
        "missing: whether the tree had changes",
    )
    return f"{commit} ({told})"


def reproduce(run: Run) -> tuple[str, str]:
    """Return the command that makes such a run again, and what it cannot bring back."""
    suite = run.suite
    note = ""
    try:
        suite_path(suite)
    except UsageError:
        # Another task than the suite's own is told in the run's name.
        suite = suite.removesuffix(f"-{run.protocol.task}")
        note = "Where that is no ready suite, name its file. "
    words = ["evalsuite", "run", suite, "--engine", run.engine.kind, "--task", run.protocol.task]
    if run.model is not None and run.model != EMBEDDED_MODEL.name:
        words += ["--model", run.model]
    names = [arm.name for arm in run.plan.arms]
    if names != [arm.name for arm in STANDARD_ARMS]:
        words += ["--arms", ",".join(names)]
    words += ["--limit", str(len(run.plan.items))]
    if run.plan.repeats > 1:
        words += ["--repeats", str(run.plan.repeats)]
    note += (
        "Items are drawn by hash, so that the same number gives the same items; for a run over "
        "chosen items, give their ids with --items."
    )
    return shlex.join(words), note


def _run(source: Source) -> list[Pair]:
    run = source.view.run
    plan = run.plan
    return [
        ("suite", run.suite + (" (report only)" if run.report_only else "")),
        ("created", run.created),
        ("engine", f"{run.engine.name} {run.engine.version or '(version missing: not told)'}"),
        ("engine options", plain(run.engine.options)),
        ("concurrency", _or(run.engine.concurrency, "the engine's own choice")),
        ("model", run.model or "missing: the engine does not name it"),
        ("model hash", run.model_hash),
        ("dtype", run.dtype),
        (
            "plan",
            f"{counted(len(plan.arms), 'arm')}, {counted(len(plan.items), 'item')}, "
            f"{counted(plan.repeats, 'repeat')}, blocks of {plan.block_size}",
        ),
        ("cannot be told", ", ".join(run.unavailable) or "nothing is declared unavailable"),
    ]


def _protocol(run: Run) -> list[Pair]:
    protocol = run.protocol
    sampling = protocol.sampling
    return [
        ("fingerprint", run.fingerprint),
        ("task", f"{protocol.task} {protocol.task_version}, {protocol.harness}"),
        ("shots", str(protocol.num_fewshot)),
        ("prefix", protocol.prefix_sha256),
        ("chat template", protocol.chat_template_sha256 or "none: plain completion"),
        ("stops", " ".join(repr(stop) for stop in protocol.stops) or "none"),
        ("token budget", str(protocol.max_tokens)),
        (
            "sampling",
            f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, seed {sampling.seed}",
        ),
        ("answer reading", protocol.extractor),
    ]


def _environment(run: Run) -> list[Pair]:
    software = {k: v for k, v in run.software.items() if k not in ("commit", "dirty")}
    return [
        *((f"hardware: {key}", plain(value)) for key, value in run.hardware.items()),
        *((f"software: {key}", plain(value)) for key, value in software.items()),
        ("commit", commit_of(run.software)),
    ]


def _baseline(source: Source) -> list[Pair]:
    found = source.baseline
    if found is None:
        return []
    last = found.history[-1]
    forced = f"; forced in although it failed {', '.join(last.failing)}" if last.forced else ""
    return [
        ("name", f"{found.suite} / {found.dtype}"),
        ("accepted runs", f"{len(found.runs)} over {found.items} items"),
        ("accepted by", last.who),
        ("accepted on", last.when),
        ("why", last.why + forced),
        ("protocol", found.fingerprint),
        ("hardware", ", ".join(found.hardware) or "missing: no run told its hardware"),
    ]


def _or(value: object, otherwise: str) -> str:
    return otherwise if value is None else str(value)
