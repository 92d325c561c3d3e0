"""Suites: a YAML file that says which engine answers which task in which arms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from evalsuite.arms import STANDARD_ARMS, Arm, parse_arm, parse_arms, reference_arms
from evalsuite.errors import UsageError
from evalsuite.paths import SUITES
from evalsuite.protocol import Chat, ThinkingModel
from evalsuite.records import Options, Scalar
from evalsuite.yamlfile import read_yaml

DEFAULT_SUITE = "glm53-mini"
ENGINE_KINDS = ("mini", "vllm", "sglang", "openai")
# Engines whose arms are servers.
SERVED = ("vllm", "sglang", "openai")

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


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one arm asks of a cluster's node."""

    cpus: int = 1
    gpus: int = 0

    def __post_init__(self) -> None:
        if self.cpus < 0 or self.gpus < 0:
            raise ValueError("resources must not be negative")


class Suite(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a suite file holds.

    `shots`, `max_tokens` and `stops` are the task's own where None; `chat` asks the questions as
    chats, and `thinking` tells of a model that thinks first. `limit` is a number of items, None for
    all; `block_size` the items that one arm answers before the next arm's turn (None: chosen by
    concurrency). A report-only suite is judged and shown, and exits 0. `unavailable` names checks
    that this engine cannot feed. `resources` is what an arm asks for under `--executor ray`.
    """

    name: str
    engine: EngineConfig
    task: str
    shots: int | None = None
    max_tokens: int | None = None
    stops: tuple[str, ...] | None = None
    chat: Chat | None = None
    thinking: ThinkingModel | None = None
    limit: int | None = None
    arms: tuple[str, ...] = tuple(arm.name for arm in STANDARD_ARMS)
    repeats: int = 1
    block_size: int | None = None
    report_only: bool = False
    baseline: Literal["auto", "none"] = "auto"
    unavailable: tuple[str, ...] = ()
    policy: Options = {}
    resources: Resources = Resources()

    def __post_init__(self) -> None:
        smallest = {"shots": 0, "max_tokens": 1, "limit": 1, "repeats": 1, "block_size": 1}
        for field, least in smallest.items():
            value = getattr(self, field)
            if value is not None and value < least:
                raise ValueError(f"{field} must be at least {least}")
        if self.stops is not None and not all(self.stops):
            raise ValueError("stops must not be empty texts")
        if (self.chat or self.thinking) and self.engine.kind not in SERVED:
            raise ValueError(f"chat and thinking need an engine of {', '.join(SERVED)}")
        for field in ("name", "task"):
            value = getattr(self, field)
            if not value or value != value.strip() or "/" in value:
                raise ValueError(f"{field} must be a plain name")
        try:
            parse_arms(self.arms)
        except UsageError as problem:
            raise ValueError(f"arms: {problem.message}") from None

    def engine_config(self) -> EngineConfig:
        """Return what the engine is opened with: its own part, and how the model thinks."""
        if self.thinking is None:
            return self.engine
        options: Options = {**self.engine.options, "thinking": msgspec.to_builtins(self.thinking)}
        return msgspec.structs.replace(self.engine, options=options)

    def parsed_arms(self) -> tuple[Arm, ...]:
        """Return the arms in order."""
        return parse_arms(self.arms)


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line sets beside the suite; None leaves the suite's value.

    `arm` asks for that arm and those that it is compared with; where arms are servers for that arm
    alone, unless `references`. `urls` are addresses of running servers and `logs` their log files,
    each for all arms or `ARM=…`.
    """

    engine: str | None = None
    model: str | None = None
    task: str | None = None
    arms: tuple[str, ...] | None = None
    arm: str | None = None
    references: bool = False
    urls: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
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
    if overrides.arm is not None:
        changes["arms"] = _with_references(overrides, engine)
    if overrides.limit is not None:
        changes["limit"] = None if overrides.limit == "all" else overrides.limit
    if overrides.repeats is not None:
        changes["repeats"] = overrides.repeats
    try:
        return msgspec.structs.replace(suite, **changes)
    except ValueError as problem:
        raise UsageError(str(problem)) from None


def _with_references(overrides: Overrides, engine: EngineConfig) -> tuple[str, ...]:
    if overrides.arms is not None:
        raise UsageError("give either --arm or --arms", field="arm")
    arm = parse_arm(str(overrides.arm))
    if engine.kind in SERVED and not overrides.references:
        # A server takes many GPUs and minutes to start: the baseline's answers are there already.
        return (arm.name,)
    return tuple(one.name for one in reference_arms(arm))


def _by_arm(words: Sequence[str], single: str) -> dict[str, Scalar | dict[str, Scalar]]:
    """Return the options that `WORD` and `ARM=WORD` stand for: `single`, and its plural by arm."""
    found: dict[str, Scalar | dict[str, Scalar]] = {}
    by_arm: dict[str, Scalar] = {}
    for one in words:
        name, equals, word = one.partition("=")
        if equals and "/" not in name:
            by_arm[parse_arm(name).name] = word
        elif single in found:
            raise UsageError(f"two for the same arms; write ARM={single.upper()}", field=single)
        else:
            found[single] = one
    if by_arm:
        found[f"{single}s"] = by_arm
    return found


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
    for single, words in (("url", overrides.urls), ("log", overrides.logs)):
        if not words:
            continue
        if config.kind not in SERVED:
            raise UsageError(f"engine {config.kind} is no server", field=single)
        kept = {k: v for k, v in config.options.items() if k not in (single, f"{single}s")}
        options = {**kept, **_by_arm(words, single)}
        config = msgspec.structs.replace(config, options=options)
    if overrides.model is not None:
        config = msgspec.structs.replace(config, model=overrides.model)
    return config
