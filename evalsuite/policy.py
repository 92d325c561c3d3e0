"""The policy: every limit that a verdict rests on, validated, and echoed in the verdict.

A policy file is YAML with the sections and keys below; what it leaves out keeps its default:

    accuracy:
      margin: 0.01
    wall:
      slower: 1.2
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evalsuite.errors import UsageError
from evalsuite.records import Run
from evalsuite.stats import AccuracyRule
from evalsuite.yamlfile import read_yaml


def _count(name: str, value: int) -> None:
    if value < 0:
        raise ValueError(f"{name} must be at least 0")


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low < value < high and not (low == value == 0.0):
        raise ValueError(f"{name} must lie between {low:g} and {high:g}")


def _levels(fail: float, warn: float) -> None:
    if not 0.0 < fail <= warn < 1.0:
        raise ValueError("levels must satisfy 0 < fail_level <= warn_level < 1")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the policy's sections."""


class Completeness(Section, frozen=True):
    """`max_errors`: how many answers of an arm may be errors. `copied`: share of items that two
    arms may have answered at the very same moments before one counts as a copy of the other."""

    max_errors: int = 0
    copied: float = 0.5

    def __post_init__(self) -> None:
        _count("max_errors", self.max_errors)
        _between("copied", self.copied, 0.0, 1.0)


class Truncation(Section, frozen=True):
    """Family-wise levels for a rise of truncated or missing answers, and the least rise (a share)
    that matters."""

    fail_level: float = 0.01
    warn_level: float = 0.05
    least_rise: float = 0.005

    def __post_init__(self) -> None:
        _levels(self.fail_level, self.warn_level)
        _between("least_rise", self.least_rise, 0.0, 1.0)


class Collapse(Section, frozen=True):
    """Early abort: after how many items to look, and the chance below which an arm is stopped."""

    looks: tuple[int, ...] = (32, 64)
    level: float = 1e-6

    def __post_init__(self) -> None:
        _between("level", self.level, 0.0, 0.01)
        steps = (0, *self.looks)
        if not self.looks or any(b <= a for a, b in zip(steps, self.looks, strict=False)):
            raise ValueError("looks must be increasing numbers of items")


class Accuracy(Section, frozen=True):
    """Levels of the accuracy family; margin and drop are shares (0.015 is 1.5 points)."""

    fail_level: float = 0.01
    warn_level: float = 0.05
    margin: float = 0.015
    margin_level: float = 0.95
    hard_drop: float = 0.05
    hard_drop_items: int = 200
    power: float = 0.8

    def __post_init__(self) -> None:
        _levels(self.fail_level, self.warn_level)
        for name in ("margin", "margin_level", "hard_drop", "power"):
            _between(name, getattr(self, name), 0.0, 1.0)
        _count("hard_drop_items", self.hard_drop_items)

    def rule(self) -> AccuracyRule:
        """Return the levels as the statistics take them."""
        return AccuracyRule(**msgspec.structs.asdict(self))


class Degeneration(Section, frozen=True):
    """`fail_level`: family-wise level of an excess of low-confidence findings. `shift_warn` and
    `shift_fail`: standard errors by which a feature of all answers may shift against eager."""

    fail_level: float = 0.01
    warn_level: float = 0.05
    shift_warn: float = 5.0
    shift_fail: float = 8.0

    def __post_init__(self) -> None:
        _levels(self.fail_level, self.warn_level)
        if not 0.0 < self.shift_warn <= self.shift_fail:
            raise ValueError("shift_warn must be above 0 and at most shift_fail")


class Equality(Section, frozen=True):
    """Divergence from eager, and drift of margins where tokens are equal.

    float32: a divergence at a margin above `rounding` is no rounding, and at most `rounding_share`
    of the items may diverge by rounding, or have margins that drift by more than `drift` (mean
    margins: by a tenth of it). Other types: a margin above `large` is a large one; shares are held
    against the baseline's at `fail_level`, rises below `least_rise` do not matter, and without a
    baseline a large-margin share above `large_share` warns. The share of answers with a margin
    farther than `loose_drift` from eager's may exceed the baseline's by `drift_rise`; that of
    eager's answers whose mean margin lies farther than `mean_drift` from the accepted one may be
    `drift_share` more than among the accepted runs."""

    rounding: float = 1e-4
    rounding_share: float = 0.003
    drift: float = 3e-4
    loose_drift: float = 0.1
    drift_rise: float = 0.15
    mean_drift: float = 0.05
    drift_share: float = 0.03
    large: float = 1.0
    large_share: float = 0.05
    least_rise: float = 0.02
    fail_level: float = 0.01

    def __post_init__(self) -> None:
        for name in ("rounding_share", "large_share", "least_rise", "fail_level"):
            _between(name, getattr(self, name), 0.0, 1.0)
        if not 0.0 < self.rounding <= self.large:
            raise ValueError("rounding must be above 0 and at most large")
        for name in ("drift_share", "drift_rise"):
            _between(name, getattr(self, name), 0.0, 1.0)
        for name in ("drift", "loose_drift", "mean_drift"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0")


class Acceptance(Section, frozen=True):
    """Accepted share per draft position: how far it may lie from the baseline's (a share), and how
    many standard errors are allowed where that is more. Beside it answers are paired with the
    accepted ones: in float32 at most `changed_share` of the items with equal text may have other
    counts of drafts; in any type the accepted share may not move by `least_change` or more where
    chance does that in fewer than `fail_level` of runs."""

    tolerance: float = 0.05
    errors: float = 6.0
    changed_share: float = 0.01
    least_change: float = 0.001
    fail_level: float = 0.002

    def __post_init__(self) -> None:
        for name in ("tolerance", "changed_share", "least_change", "fail_level"):
            _between(name, getattr(self, name), 0.0, 1.0)
        if self.errors < 0.0:
            raise ValueError("errors must be at least 0")


class Route(Section, frozen=True):
    """How many eager decode steps a graph arm may run."""

    max_eager_decode_steps: int = 0

    def __post_init__(self) -> None:
        _count("max_eager_decode_steps", self.max_eager_decode_steps)


class Wall(Section, frozen=True):
    """Wall time. `mtp5_below`: what mtp5 / graph must stay under on a GPU. `tolerance`: how far a
    ratio may exceed the baseline's (0.15: by 15 %); the arm must also take `excess` seconds more
    than that allows. `slower`: how many times the baseline's time of the same hardware class an arm
    may take, where that is `shortest` seconds or more. What else a host does shows in shorter
    times."""

    mtp5_below: float = 1.0
    tolerance: float = 0.15
    excess: float = 0.5
    slower: float = 1.3
    shortest: float = 15.0
    level: float = 0.95

    def __post_init__(self) -> None:
        for name in ("mtp5_below", "tolerance", "slower"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0")
        for name in ("excess", "shortest"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name} must be at least 0")
        _between("level", self.level, 0.5, 1.0)


class Policy(Section, frozen=True):
    """All sections; see each for its values."""

    completeness: Completeness = Completeness()
    truncation: Truncation = Truncation()
    collapse: Collapse = Collapse()
    accuracy: Accuracy = Accuracy()
    degeneration: Degeneration = Degeneration()
    equality: Equality = Equality()
    acceptance: Acceptance = Acceptance()
    route: Route = Route()
    wall: Wall = Wall()


def policy_for(run: Run, file: Path | None, folder: Path) -> Policy:
    """Return the policy of `file`, or else the run's own (its suite's values over the defaults).

    Raises UsageError naming file and key for whatever is wrong.
    """
    if file is not None:
        return read_yaml(file, Policy)
    return policy_from(run.policy, folder / "run.json")


def policy_from(values: Mapping[str, Any], source: Path | None = None) -> Policy:
    """Return a policy from plain values. Raises UsageError for an unknown key or a bad value."""
    try:
        return msgspec.convert(dict(values), Policy, strict=True)
    except msgspec.ValidationError as problem:
        raise UsageError(str(problem), file=source, field="policy") from None
