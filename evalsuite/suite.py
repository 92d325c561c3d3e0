"""Suites: a YAML file that says which engine answers which task in which arms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from evalsuite.arms import STANDARD_ARMS, Arm, parse_arms
from evalsuite.errors import UsageError
from evalsuite.paths import SUITES
from evalsuite.records import Options
from evalsuite.yamlfile import read_yaml

DEFAULT_SUITE = "glm53-mini"
ENGINE_KINDS = ("mini", "vllm", "sglang", "openai")

_PLUGIN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which engine to open and how. None leaves a choice to the engine; `options` are its own.

    `kind` is one of ENGINE_KINDS, or `module:function` for an engine kept elsewhere.
    """

    kind: str
    model: str | None = None
    dtype: str | None = None
    device: str | None = None
    concurrency: int | None = None
    options: Options = {}

    def __post_init__(self) -> None:
        if self.kind not in ENGINE_KINDS and not _PLUGIN.fullmatch(self.kind):
            known = ", ".join(ENGINE_KINDS)
            raise ValueError(f"kind must be {known} or module:function, not {self.kind!r}")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError("concurrency must be at least 1")


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a suite file holds.

    `shots` and `max_tokens` are the task's own where None; `limit` is a number of items, None for
    all; `block_size` the items that one arm answers before the next arm's turn (None: chosen by
    concurrency). A report-only suite is judged and shown, and exits 0. `unavailable` names checks
    that this engine cannot feed.
    """

    name: str
    engine: EngineConfig
    task: str
    shots: int | None = None
    max_tokens: int | None = None
    limit: int | None = None
    arms: tuple[str, ...] = tuple(arm.name for arm in STANDARD_ARMS)
    repeats: int = 1
    block_size: int | None = None
    report_only: bool = False
    baseline: Literal["auto", "none"] = "auto"
    unavailable: tuple[str, ...] = ()
    policy: Options = {}

    def __post_init__(self) -> None:
        smallest = {"shots": 0, "max_tokens": 1, "limit": 1, "repeats": 1, "block_size": 1}
        for field, least in smallest.items():
            value = getattr(self, field)
            if value is not None and value < least:
                raise ValueError(f"{field} must be at least {least}")
        for field in ("name", "task"):
            value = getattr(self, field)
            if not value or value != value.strip() or "/" in value:
                raise ValueError(f"{field} must be a plain name")
        try:
            parse_arms(self.arms)
        except UsageError as problem:
            raise ValueError(f"arms: {problem.message}") from None

    def parsed_arms(self) -> tuple[Arm, ...]:
        """Return the arms in order."""
        return parse_arms(self.arms)


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line sets beside the suite; None leaves the suite's value."""

    engine: str | None = None
    model: str | None = None
    task: str | None = None
    arms: tuple[str, ...] | None = None
    limit: int | Literal["all"] | None = None
    repeats: int | None = None


def suite_path(name: str) -> Path:
    """Return the file of a suite given by its name in `suites/` or by a path."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    path = SUITES / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in SUITES.glob("*.yaml"))) or "none"
        raise UsageError(f"no suite {name!r}; there are: {known}", field="SUITE")
    return path


def load_suite(name: str) -> Suite:
    """Return a suite. Raises UsageError naming file, line and key for whatever is wrong in it."""
    return read_yaml(suite_path(name), Suite)


def resolve_suite(name: str, overrides: Overrides) -> Suite:
    """Return the suite with the command line's wishes applied.

    Another task than the suite's own selects the ready suite `<suite>-<task>` where there is one,
    and otherwise makes the run report-only: no baseline can stand for it.
    """
    suite = load_suite(name)
    if overrides.task is not None and overrides.task != suite.task:
        suite = _other_task(suite, overrides.task)
    engine = _engine(suite.engine, overrides)
    changes: dict[str, object] = {"engine": engine}
    if overrides.arms is not None:
        changes["arms"] = tuple(arm.name for arm in parse_arms(overrides.arms))
    if overrides.limit is not None:
        changes["limit"] = None if overrides.limit == "all" else overrides.limit
    if overrides.repeats is not None:
        changes["repeats"] = overrides.repeats
    try:
        return msgspec.structs.replace(suite, **changes)
    except ValueError as problem:
        raise UsageError(str(problem)) from None


def _other_task(suite: Suite, task: str) -> Suite:
    ready = SUITES / f"{suite.name}-{task}.yaml"
    if ready.exists():
        return load_suite(str(ready))
    return msgspec.structs.replace(
        suite, name=f"{suite.name}-{task}", task=task, shots=None, report_only=True
    )


def _engine(config: EngineConfig, overrides: Overrides) -> EngineConfig:
    if overrides.engine is not None and overrides.engine != config.kind:
        # Another engine's model, dtype and options would mean nothing to this one.
        try:
            config = EngineConfig(kind=overrides.engine)
        except ValueError as problem:
            raise UsageError(str(problem), field="engine") from None
    if overrides.model is not None:
        config = msgspec.structs.replace(config, model=overrides.model)
    return config
