"""What a run leaves in a baseline: figures by arm, answers by item, times by hardware class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from evalsuite.baseline_file import (
    AcceptedRun,
    ArmFigures,
    Cell,
    HardwareClass,
    ItemAnswers,
    digest_of,
)
from evalsuite.counted import drafts_of, drifted_of, routes_of, shares_of, times_of
from evalsuite.errors import UsageError
from evalsuite.policy import Equality
from evalsuite.runview import CODE, ArmView, RunView
from evalsuite.scoring import OUTCOMES

# Mean margins are kept to so many decimals: far below any drift that is judged.
DECIMALS = 5


def digest_of_run(run: RunView) -> str:
    """Return a digest over a run's outcomes and times, the same in whatever order they lie."""
    chunks = [run.run.fingerprint.encode(), run.run.created.encode()]
    for name, arm in run.arms.items():
        order = np.argsort(np.array(run.ids))
        chunks.append(name.encode())
        chunks += [part[:, order].tobytes() for part in (arm.outcome, arm.started, arm.ended)]
    return digest_of(chunks)


def common_items(run: RunView, folder: Path) -> list[str]:
    """Return the items that every arm answered in every repeat. Raises UsageError for none."""
    answered = np.ones(len(run.ids), dtype=bool)
    for arm in run.arms.values():
        answered &= (arm.outcome >= 0).all(axis=0)
    found = [one for one, there in zip(run.ids, answered, strict=True) if there]
    if not found:
        raise UsageError("no item was answered by every arm", file=folder)
    return found


def accepted_run(run: RunView, limits: Equality) -> AcceptedRun:
    """Reduce a run to its figures; `limits` say what a large divergence and a drift are."""
    return AcceptedRun(
        digest=digest_of_run(run),
        created=run.run.created,
        repeats=run.run.plan.repeats,
        engine=run.run.engine.name,
        engine_version=run.run.engine.version,
        hardware=run.run.hardware,
        software=run.run.software,
        arms={name: _figures(run, name, arm, limits) for name, arm in run.arms.items()},
    )


def grown_answers(run: RunView, before: Mapping[str, ItemAnswers]) -> list[ItemAnswers]:
    """Return the answers of every item with the run's added, in the order of item ids."""
    flags = {name: _rules(arm) for name, arm in run.arms.items()}
    rows = [_row(run, column, one, before.get(one), flags) for column, one in enumerate(run.ids)]
    return sorted(rows, key=lambda row: row.item_id)


def grown_hardware(run: RunView, before: Mapping[str, HardwareClass]) -> dict[str, HardwareClass]:
    """Return the hardware classes with the run's routes and times added.

    The routes of the newest run count: the kernel that a row kind goes to is a decision, and a run
    whose route differed has been looked at when it was accepted.
    """
    name = run.hardware_class
    known = before.get(name)
    routes = {} if known is None else {arm: dict(kinds) for arm, kinds in known.routes.items()}
    for arm, kinds in routes_of(run).items():
        routes.setdefault(arm, {}).update(kinds)
    runs = [*([] if known is None else known.runs), times_of(run)]
    return {**before, name: HardwareClass(routes=routes, runs=runs)}


def _figures(run: RunView, name: str, arm: ArmView, limits: Equality) -> ArmFigures:
    counts = {key: int((arm.outcome == code).sum()) for key, code in CODE.items()}
    return ArmFigures(
        accuracy=float(arm.correct.mean()),
        outcomes={key: count for key, count in counts.items() if count},
        shares=shares_of(run, name, limits.large),
        drafts=drafts_of(run, name),
        drifted=drifted_of(arm, limits.loose_drift),
    )


def _rules(arm: ArmView) -> dict[tuple[int, int], tuple[str, bool]]:
    found: dict[tuple[int, int], tuple[str, bool]] = {}
    for seen in arm.seen:
        key = (seen.repeat, seen.item)
        if key not in found or (seen.high and not found[key][1]):
            found[key] = (seen.rule, seen.high)
    return found


def _row(
    run: RunView,
    column: int,
    item: str,
    before: ItemAnswers | None,
    flags: Mapping[str, Mapping[tuple[int, int], tuple[str, bool]]],
) -> ItemAnswers:
    texts = [] if before is None else list(before.texts)
    place = {text: at for at, text in enumerate(texts)}
    arms = {}
    for name, arm in run.arms.items():
        cells = [] if before is None else list(before.arms[name])
        for repeat in range(arm.shape[0]):
            text = arm.texts[repeat][column]
            if text is not None and text not in place:
                place[text] = len(texts)
                texts.append(text)
            rule, high = flags[name].get((repeat, column), (None, False))
            cells.append(
                Cell(
                    text=None if text is None else place[text],
                    outcome=OUTCOMES[arm.outcome[repeat, column]],  # type: ignore[arg-type]
                    rule=rule,
                    confidence=None if rule is None else ("high" if high else "low"),
                    margin=_rounded(float(arm.mean_margin[repeat, column])),
                    drafted=_told(int(arm.drafted[repeat, column])),
                    accepted=_told(int(arm.accepted[repeat, column])),
                )
            )
        arms[name] = cells
    return ItemAnswers(item_id=item, texts=texts, arms=arms)


def _rounded(margin: float) -> float | None:
    return None if np.isnan(margin) else round(margin, DECIMALS)


def _told(count: int) -> int | None:
    return None if count < 0 else count
