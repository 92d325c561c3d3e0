"""What is drawn in each figure; every function returns the caption."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes

from evalsuite.checks.acceptance import allowed_distance
from evalsuite.report.source import Source
from evalsuite.report.svg import (
    ARM,
    BASE,
    FAIL,
    MUTED,
    SERIES,
)
from evalsuite.runview import EAGER


class NotDrawn(Exception):
    """What a figure needs is not there; the message says what."""


def accuracy(source: Source, axes: Axes) -> str:
    """Draw accuracy by arm with its Wilson interval, beside the baseline's."""
    arms = [arm for arm in source.verdict.arms if arm.accuracy is not None]
    if not arms:
        raise NotDrawn("no arm has an answer")
    for at, arm in enumerate(arms):
        low, high, value = (100 * (x or 0.0) for x in (arm.low, arm.high, arm.accuracy))
        bad = source.status(arm.arm, "accuracy", "collapse") == "fail"
        axes.errorbar(
            at,
            value,
            yerr=[[max(value - low, 0.0)], [max(high - value, 0.0)]],
            fmt="o",
            color=FAIL if bad else ARM,
            capsize=3,
        )
        if arm.baseline_accuracy is not None:
            axes.plot([at - 0.3, at + 0.3], [100 * arm.baseline_accuracy] * 2, color=BASE, lw=2)
    _arms(axes, [arm.arm for arm in arms])
    axes.set_ylabel("correct, %")
    held = any(arm.baseline_accuracy is not None for arm in arms)
    told = "bars the baseline's mean" if held else "no baseline to compare with"
    return f"Points: this run with its 95 % interval; {told}."


def wall_time(source: Source, axes: Axes) -> str:
    """Draw wall seconds by arm with the ratio inside the run."""
    arms = [arm for arm in source.verdict.arms if arm.wall_s > 0.0]
    if not arms:
        raise NotDrawn("the records hold no times")
    bars = axes.bar(range(len(arms)), [arm.wall_s for arm in arms], width=0.6, color=ARM)
    labels = ["" if arm.ratio is None else f"{arm.ratio:.2f}×" for arm in arms]
    axes.bar_label(bars, labels, padding=2, fontsize=8)
    _arms(axes, [arm.arm for arm in arms])
    axes.grid(axis="x", visible=False)
    axes.set_ylabel("wall time, s")
    return "Above a bar: the ratio to graph (MTP arms) or to eager, over the blocks both answered."


def acceptance(source: Source, axes: Axes) -> str:
    """Draw the accepted share per draft position beside the stored curve, floor and ceiling."""
    arms = [arm for arm in source.verdict.arms if arm.acceptance]
    if not arms:
        mtp = source.view.mtp
        raise NotDrawn("no arm tells its accepted drafts" if mtp else "no arm speculates")
    deepest = max(arms, key=lambda arm: len(arm.acceptance or ()))
    for colour, arm in zip(cycle(SERIES), arms, strict=False):
        rates = [100 * rate for rate in arm.acceptance or ()]
        axes.plot(range(1, len(rates) + 1), rates, "o-", ms=3.5, color=colour, label=arm.arm)
    stored = _stored_curve(source, deepest.arm)
    if stored is not None:
        curve, allowed = stored
        places = np.arange(1, len(curve) + 1)
        floor, ceiling = np.maximum(curve - allowed, 0), np.minimum(curve + allowed, 100)
        axes.fill_between(places, floor, ceiling, color=BASE, alpha=0.18, lw=0)
        axes.plot(places, curve, "--", color=BASE, label="baseline")
    axes.set_xticks(range(1, len(deepest.acceptance or ()) + 1))
    axes.set_xlabel("draft position")
    axes.set_ylabel("accepted, %")
    axes.legend(ncols=3)
    if stored is None:
        return "Shares of the verification steps in which the draft at a position was accepted."
    return f"The band is the floor and ceiling for {deepest.arm} around its baseline (dashed)."


def _stored_curve(
    source: Source, arm: str
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...] | None:
    if source.baseline is None:
        return None
    parts = [run.arms[arm].drafts for run in source.baseline.runs if arm in run.arms]
    known = [part for part in parts if part is not None and part.drafts]
    evidence = source.view.arms[arm].evidence
    if not known or evidence is None or not evidence.drafts:
        return None
    steps = sum(part.drafts for part in known)
    rates = [sum(column) / steps for column in zip(*(p.accepted for p in known), strict=True)]
    policy = source.verdict.policy
    allowed = [allowed_distance(rate, evidence.drafts, steps, policy) for rate in rates]
    return 100 * np.array(rates), 100 * np.array(allowed)


def output_lengths(source: Source, axes: Axes) -> str:
    """Draw the distribution of answer lengths by arm."""
    lengths: dict[str, list[int]] = {}
    for pool in source.pools:
        for column, cell in pool.cells.items():
            if cell.output_tokens is not None:
                lengths.setdefault(column.arm, []).append(cell.output_tokens)
    if not lengths:
        raise NotDrawn("the engine does not count tokens")
    names = [name for name in source.view.arms if name in lengths]
    boxes = axes.boxplot(
        [lengths[name] for name in names],
        whis=(5, 95),
        widths=0.55,
        showfliers=False,
        patch_artist=True,
        medianprops={"color": ARM, "linewidth": 2},
        whiskerprops={"color": MUTED},
        capprops={"color": MUTED},
        boxprops={"edgecolor": MUTED},
    )
    for box in boxes["boxes"]:
        box.set(facecolor=ARM, alpha=0.25)
    for at, name in enumerate(names, start=1):
        axes.plot(at, max(lengths[name]), "_", color=MUTED, ms=6)
    axes.set_xticks(range(1, len(names) + 1), names)
    axes.set_ylabel("output tokens")
    axes.set_ylim(bottom=0)
    lacking = [name for name in source.view.arms if name not in lengths]
    told = f" Missing: {', '.join(lacking)}." if lacking else ""
    return f"Box: middle half; whiskers: 5 % and 95 %; mark: the longest answer.{told}"


def divergence(source: Source, axes: Axes) -> str:
    """Draw where answers first part from eager's, against the margin there."""
    if EAGER not in source.view.arms:
        raise NotDrawn("no eager arm in this run")
    others = [arm for name, arm in source.view.arms.items() if name != EAGER]
    if not any((arm.divergence >= -1).any() for arm in others):
        raise NotDrawn("the records hold no token ids to compare")
    unknown = total = 0
    for colour, arm in zip(cycle(SERIES), others, strict=False):
        diverged = arm.divergence >= 0
        known = diverged & ~np.isnan(arm.margin)
        total += int(diverged.sum())
        unknown += int((diverged & ~known).sum())
        if known.any():
            # A margin of 0 is a tie; it is drawn at the axis' lower end.
            margins = np.maximum(arm.margin[known], 1e-6)
            axes.plot(arm.divergence[known], margins, "o", ms=4, color=colour, label=arm.name)
    if total == 0:
        raise NotDrawn("no answer parts from eager's: nothing to draw")
    if total == unknown:
        raise NotDrawn(f"{total} answers part from eager's, but no margin is known")
    limits = source.verdict.policy.equality
    limit = limits.rounding if source.view.exact else limits.large
    axes.axhline(limit, color=FAIL, ls="--", lw=1)
    axes.set_yscale("log")
    axes.set_xlabel("first token that differs")
    axes.set_ylabel("logit margin there")
    axes.legend(ncols=3)
    told = f"; the margin of {unknown} is missing" if unknown else ""
    line = "no rounding" if source.view.exact else "a large margin"
    return f"{total} answers part from eager's{told}. Above the dashed line: {line}."


def history(source: Source, axes: Axes) -> str:
    """Draw the accuracy of the accepted runs in order, and this run's last."""
    if source.baseline is None:
        raise NotDrawn(source.no_baseline or "no baseline")
    runs = source.baseline.runs
    now = len(runs) + 1
    this = {arm.arm: arm.accuracy for arm in source.verdict.arms}
    for colour, name in zip(cycle(SERIES), runs[0].arms, strict=False):
        values = [100 * run.arms[name].accuracy for run in runs]
        axes.plot(range(1, now), values, "o-", ms=3, color=colour, label=name)
        value = this.get(name)
        if value is not None:
            axes.plot([now - 1, now], [values[-1], 100 * value], ":", color=colour)
            axes.plot(now, 100 * value, "D", ms=4, color=colour)
    labels = [*(run.created[5:10] for run in runs), "this run"]
    step = max(1, len(labels) // 6)
    places = sorted({*range(1, now + 1, step), now})
    axes.set_xticks(places, [labels[place - 1] for place in places])
    axes.set_ylabel("correct, %")
    axes.legend(ncols=4, fontsize=7)
    return f"{len(runs)} accepted, in the order of acceptance; diamonds: this run."


def _arms(axes: Axes, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.6, len(names) - 0.4)
