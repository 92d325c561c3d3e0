"""The arms table: one row for each arm, one function for each column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evalsuite.checks import Status
from evalsuite.report.cells import COLUMNS, Cell, Row, absent, inapplicable, unfinished
from evalsuite.report.source import Source
from evalsuite.report.text import counted, p_value, percent, points, seconds
from evalsuite.runview import ABSENT, EAGER
from evalsuite.stats import POOLED
from evalsuite.verdict import ArmFigures, TestFigures

__all__ = ["COLUMNS", "arm_rows", "pooled_lines"]


def arm_rows(source: Source) -> list[Row]:
    """Return the table's rows in the plan's order."""
    return [
        Row(arm.arm, {key: make(source, arm) for key, make in _MAKERS.items()})
        for arm in source.verdict.arms
    ]


def pooled_lines(source: Source) -> list[tuple[Status, str]]:
    """Return what the tests of the MTP arms together found, each with the check's status."""
    against = {"baseline": "their baseline", "plain": "the arms without speculation"}
    status = source.status_of_run("accuracy")
    return [
        (
            status,
            f"The MTP arms together: {points(-test.drop)} against "
            f"{against.get(test.against, test.against)} ({p_value(test.p_holm)}).",
        )
        for test in source.verdict.tests
        if test.arm == POOLED
    ]


def _accuracy(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "accuracy", "collapse")
    if arm.accuracy is None or arm.low is None or arm.high is None:
        return absent("no answers", status)
    short = "" if arm.answers == arm.planned else f", {arm.answers} of {arm.planned} answers"
    detail = f"{100 * arm.low:.1f} to {100 * arm.high:.1f}{short}"
    return Cell(percent(arm.accuracy), detail, status, values=(("accuracy", arm.accuracy),))


def _eager(source: Source, arm: ArmFigures) -> Cell:
    if arm.arm == EAGER:
        return inapplicable("is eager itself")
    if EAGER not in source.view.arms:
        return absent("no eager arm in this run")
    return _test(source, arm.arm, EAGER, "not tested")


def _baseline(source: Source, arm: ArmFigures) -> Cell:
    if source.verdict.baseline is None:
        return inapplicable("no baseline")
    if arm.baseline_accuracy is None:
        return absent("the baseline has no such arm", source.status(arm.arm, "accuracy"))
    return _test(source, arm.arm, "baseline", "not tested")


def _test(source: Source, arm: str, against: str, otherwise: str) -> Cell:
    status = source.status(arm, "accuracy")
    for test in source.verdict.tests:
        if test.arm == arm and test.against == against:
            return _difference(test, status)
    return absent(unfinished(source, arm) or otherwise, status)


def _difference(test: TestFigures, status: Status) -> Cell:
    values = (("drop", test.drop), ("p_holm", test.p_holm))
    return Cell(points(-test.drop), p_value(test.p_holm), status, values=values)


def _flips(source: Source, arm: ArmFigures) -> Cell:
    for flips in source.verdict.flips:
        if flips.arm == arm.arm:
            detail = f"{len(flips.lost)} lost, {len(flips.gained)} gained"
            total = len(flips.lost) + len(flips.gained)
            values = (("lost", float(len(flips.lost))), ("gained", float(len(flips.gained))))
            return Cell(str(total), detail, source.status(arm.arm, "accuracy"), values=values)
    if source.verdict.baseline is None:
        return inapplicable("no baseline")
    return absent(unfinished(source, arm.arm) or "the baseline has no such arm")


def _outcomes(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "completeness", "truncation", "degeneration")
    if not arm.answers:
        return absent("no answers", status)
    others = {name: count for name, count in arm.outcomes.items() if name != "correct"}
    text = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in others.items())
    return Cell(text or "all correct", status=status)


def _equality(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "equality")
    if arm.arm == EAGER:
        return inapplicable("is eager itself")
    view = source.view.arms[arm.arm]
    texts = int((view.same_text != ABSENT).sum())
    if not texts:
        told = "no eager arm in this run" if EAGER not in source.view.arms else "no answers"
        return absent(told, status)
    compared = int((view.divergence >= -1).sum())
    if not compared:
        different = int((view.same_text == 0).sum())
        return Cell(f"{different} of {texts}", "texts; no token ids", status)
    diverged = view.divergence >= 0
    margin = np.nanmax(view.margin[diverged], initial=-1.0)
    detail = f"largest margin {margin:.3g}" if margin >= 0.0 else ""
    return Cell(f"{int(diverged.sum())} of {compared}", detail, status)


def _wall(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "wall")
    took = seconds(arm.wall_s)
    if arm.ratio is None or arm.ratio_low is None or arm.ratio_high is None:
        if arm.ratio_to is None:
            return Cell("1 ×", f"the reference; {took}", status)
        told = unfinished(source, arm.arm) or f"fewer than two blocks shared with {arm.ratio_to}"
        return absent(f"{told}; took {took}", status)
    detail = f"{arm.ratio_low:.2f} to {arm.ratio_high:.2f} of {arm.ratio_to}; {took}"
    return Cell(f"{arm.ratio:.2f} ×", detail, status, values=(("ratio", arm.ratio),))


def _speed(source: Source, arm: ArmFigures) -> Cell:
    counts = [
        cell.output_tokens
        for pool in source.pools
        for column, cell in pool.cells.items()
        if column.arm == arm.arm
    ]
    known = [count for count in counts if count is not None]
    if not counts:
        return absent("no answers")
    if len(known) < len(counts):
        return absent("the engine does not count tokens")
    if arm.wall_s <= 0.0:
        return absent("the records hold no times")
    return Cell(f"{sum(known) / arm.wall_s:,.0f}", f"{sum(known):,} tokens")


def _accepted(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "acceptance")
    if not source.view.arms[arm.arm].arm.mtp:
        return inapplicable("does not speculate", status if status != "pass" else None)
    if arm.accepted_length is None or arm.acceptance is None:
        return absent(unfinished(source, arm.arm) or "the evidence does not tell it", status)
    detail = " ".join(f"{rate:.2f}" for rate in arm.acceptance)
    values = (("accepted_length", arm.accepted_length),)
    return Cell(f"{arm.accepted_length:.2f}", detail, status, values=values)


def _graphs(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "route")
    evidence = source.view.arms[arm.arm].evidence
    if evidence is None:
        return absent(unfinished(source, arm.arm) or "its evidence is damaged", status)
    if evidence.graph_replays is None:
        return absent("the engine does not tell", status)
    eager = evidence.eager_decode_steps
    told = "eager steps missing" if eager is None else counted(eager, "eager step")
    values = (("graph_replays", float(evidence.graph_replays)),)
    return Cell(f"{evidence.graph_replays:,}", told, status, values=values)


def _route(source: Source, arm: ArmFigures) -> Cell:
    status = source.status(arm.arm, "route")
    evidence = source.view.arms[arm.arm].evidence
    if evidence is None:
        return absent(unfinished(source, arm.arm) or "its evidence is damaged", status)
    if not evidence.routes:
        return absent("the engine does not tell", status)
    kernels: dict[str, list[str]] = {}
    for kind, kernel in evidence.routes.items():
        kernels.setdefault(kernel, []).append(kind)
    text = "; ".join(f"{kernel} ({', '.join(kinds)})" for kernel, kinds in kernels.items())
    return Cell(text, status=status)


_MAKERS: dict[str, Callable[[Source, ArmFigures], Cell]] = {
    "accuracy": _accuracy,
    "eager": _eager,
    "baseline": _baseline,
    "flips": _flips,
    "outcomes": _outcomes,
    "equality": _equality,
    "wall": _wall,
    "speed": _speed,
    "accepted": _accepted,
    "graphs": _graphs,
    "route": _route,
}
