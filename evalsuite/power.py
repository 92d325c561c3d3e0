"""What a gate over so many items can see, before anything is run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType

from evalsuite.errors import EXIT_PASS, UsageError
from evalsuite.stats import AccuracyRule, drop_upper_bound, smallest_detectable_drop

# Seven arms against the baseline, six against eager, the MTP arms pooled twice.
TESTS = 15


@dataclass(frozen=True)
class PowerStatement:
    """Smallest drops (shares) found with probability `power`, and what healthy arms can show.

    `one_arm` is for a fault in one arm at the family's strictest level; `margin_bound` the upper
    bound of the drop that an arm without any net loss shows, one-sided.
    """

    n: int
    flip_rate: float
    runs: int
    tests: int
    power: float
    one_arm: float
    margin: float
    margin_bound: float
    exit_code: int = EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return asdict(self)

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        return [self.sentence()]

    def sentence(self) -> str:
        """Say it in words."""
        runs = "1 accepted run" if self.runs == 1 else f"{self.runs} accepted runs"
        within = "can" if self.margin_bound < self.margin else "cannot"
        return (
            f"With {self.n} items, a flip rate of {self.flip_rate:.1%} and {runs}, a drop of "
            f"{100 * self.one_arm:.1f} points or more in one arm is found with {self.power:.0%} "
            f"power among {self.tests} tests; an arm without a net loss {within} be shown to be "
            f"within {100 * self.margin:g} points (bound {100 * self.margin_bound:.2f}). Verdicts "
            "weigh items by how steady the accepted answers are, and find smaller drops than this."
        )


def power_statement(
    n: int,
    flips: float,
    *,
    runs: int = 1,
    tests: int = TESTS,
    power: float = 0.8,
    rule: AccuracyRule | None = None,
) -> PowerStatement:
    """Return what `n` items can show at a flip rate `flips` with `runs` accepted runs.

    Averaging over R accepted answers takes the variance to (1 + 1/R)/2 of a single pair's. Items
    are not weighed here, since nothing is known of them yet: verdicts, which know them, state
    smaller drops. Raises UsageError for numbers out of range.
    """
    rule = rule or AccuracyRule()
    limits = (("n", n, 1, 10**8), ("flips", flips, 0.0, 0.9), ("runs", runs, 1, 10**6))
    for name, value, low, high in (
        *limits,
        ("tests", tests, 1, 10**6),
        ("power", power, 0.01, 0.999),
    ):
        if not low <= value <= high:
            raise UsageError(f"{value} is not between {low} and {high}", field=name)
    effect = 0.5 + 0.5 / runs
    return PowerStatement(
        n=n,
        flip_rate=flips,
        runs=runs,
        tests=tests,
        power=power,
        one_arm=smallest_detectable_drop(
            n, flips, rule.fail_level / tests, power, design_effect=effect
        ),
        margin=rule.margin,
        margin_bound=float(
            drop_upper_bound(n * flips / 2, n * flips / 2, n, rule.margin_level, effect)
        ),
    )
