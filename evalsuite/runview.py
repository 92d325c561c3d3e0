"""A run folder in memory, as the checks see it: arrays over (repeat, item), aligned to the plan.

Outcomes are computed anew from text, token ids and gold; what the records say of themselves is only
compared. Records are read one by one and dropped, so that a run of 100,000 items fits: token ids
and margins are kept for the eager arm alone, of the others the first divergence from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from evalsuite.arms import Arm
from evalsuite.assess import ASSESSMENT_VERSION
from evalsuite.errors import DamagedRun
from evalsuite.harness.task import item_id
from evalsuite.records import Evidence, Item, Run
from evalsuite.scoring import OUTCOMES

EAGER = "eager"
CODE = {name: code for code, name in enumerate(OUTCOMES)}
ABSENT = -1
# Codes of `ArmView.divergence` besides the index of the first token that differs.
EQUAL, NO_TWIN, NO_IDS = -1, -2, -3

Int8 = npt.NDArray[np.int8]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
EXACT_DTYPES = ("float32", "float64")
ARRAYS = (
    *("outcome", "divergence", "margin", "drift", "drift_at", "mean_margin", "same_text"),
    *("drafted", "accepted", "block", "started", "ended"),
)
ProblemKind = Literal["unfinished", "damaged", "duplicate", "foreign", "mislabelled", "altered"]


class Problem(NamedTuple):
    """Something wrong with an arm's files; `examples` are item ids."""

    kind: ProblemKind
    message: str
    examples: tuple[str, ...] = ()


class Seen(NamedTuple):
    """A degeneration rule that saw something in the answer at (repeat, item)."""

    repeat: int
    item: int
    rule: str
    high: bool


@dataclass
class ArmView:
    """One arm. Arrays have shape (repeats, items); see `RunView` for the order of items.

    `outcome` holds codes of `CODE`, ABSENT where there is no record. `divergence` is the index of
    the first token that differs from eager's, or a code; `margin` the logit margin there (NaN where
    unknown). `drift` is the largest distance of a margin from eager's over the tokens before it,
    `drift_at` the token that has it; `mean_margin` the mean of the answer's own margins. NaN and -1
    where they are not known. `same_text` is 1 or 0 against eager's text, ABSENT where either is not
    there. `drafted` and `accepted` count the answer's draft tokens, -1 where they are not told.
    """

    arm: Arm
    shape: tuple[int, int]
    evidence: Evidence | None = None
    problems: list[Problem] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    outcome: Int8 = field(init=False)
    divergence: Ints = field(init=False)
    margin: Floats = field(init=False)
    drift: Floats = field(init=False)
    drift_at: Ints = field(init=False)
    mean_margin: Floats = field(init=False)
    drafted: Ints = field(init=False)
    accepted: Ints = field(init=False)
    same_text: Int8 = field(init=False)
    block: Ints = field(init=False)
    started: Floats = field(init=False)
    ended: Floats = field(init=False)
    texts: list[list[str | None]] = field(init=False)
    without_ids: int = 0
    without_margins: int = 0

    def __post_init__(self) -> None:
        self.outcome = np.full(self.shape, ABSENT, np.int8)
        self.divergence = np.full(self.shape, NO_TWIN, np.int32)
        for name in ("margin", "drift", "mean_margin"):
            setattr(self, name, np.full(self.shape, np.nan))
        for name in ("drift_at", "drafted", "accepted", "block"):
            setattr(self, name, np.full(self.shape, -1, np.int32))
        self.same_text = np.full(self.shape, ABSENT, np.int8)
        self.started = np.zeros(self.shape)
        self.ended = np.zeros(self.shape)
        self.texts = [[None] * self.shape[1] for _ in range(self.shape[0])]

    @property
    def name(self) -> str:
        """The arm's name."""
        return self.arm.name

    @property
    def finished(self) -> bool:
        """Whether the arm says that it ended: its evidence was written."""
        return all(problem.kind != "unfinished" for problem in self.problems)

    @property
    def complete(self) -> bool:
        """Whether every planned answer has a record."""
        return bool((self.outcome != ABSENT).all())

    @property
    def correct(self) -> Int8:
        """1 where the outcome is `correct`, else 0."""
        return self.are("correct")

    def are(self, outcome: str) -> Int8:
        """1 where the outcome is `outcome`, else 0."""
        return np.asarray(self.outcome == CODE[outcome]).astype(np.int8)

    def flagged(self, high: bool) -> Int8:
        """1 where a rule of that confidence saw something, else 0."""
        flags = np.zeros(self.shape, np.int8)
        for seen in self.seen:
            if seen.high == high:
                flags[seen.repeat, seen.item] = 1
        return flags


@dataclass
class RunView:
    """A run: `items` in the plan's order, `arms` in the plan's order."""

    folder: Path
    run: Run
    items: list[Item]
    arms: dict[str, ArmView]

    @property
    def ids(self) -> tuple[str, ...]:
        """Item ids in the plan's order."""
        return self.run.plan.items

    @property
    def mtp(self) -> list[str]:
        """Names of the arms that speculate."""
        return [name for name, view in self.arms.items() if view.arm.mtp]

    @property
    def exact(self) -> bool:
        """Whether numbers of a right engine differ by rounding alone: where keys are chosen by a
        hard top-k, rounding in a shorter type leads to other keys."""
        return self.run.dtype in EXACT_DTYPES

    @property
    def on_gpu(self) -> bool:
        """Whether the run was made on a GPU."""
        return self.run.hardware.get("device") in ("cuda", "rocm")

    @property
    def hardware_class(self) -> str:
        """What wall times may be compared over: device, count and name."""
        hardware = self.run.hardware
        return " ".join(str(hardware.get(key, "?")) for key in ("device", "count", "name"))

    @property
    def same_extractor(self) -> bool:
        """Whether the records were scored by the version that judges them now."""
        return self.run.protocol.extractor == ASSESSMENT_VERSION

    def where(self, mask: Bools) -> list[str]:
        """Ids of the items at which `mask` (repeats, items) holds anywhere, in the plan's order."""
        return [self.ids[int(index)] for index in np.flatnonzero(mask.any(axis=0))]


def restricted(view: RunView, ids: Sequence[str]) -> RunView:
    """Return the run as if it had been made over `ids` alone, all of which it must hold."""
    index = {one: at for at, one in enumerate(view.ids)}
    columns = [index[one] for one in ids]
    place = {column: at for at, column in enumerate(columns)}
    plan = msgspec.structs.replace(view.run.plan, items=tuple(ids))
    arms = {}
    for name, arm in view.arms.items():
        part = ArmView(arm.arm, (arm.shape[0], len(columns)), arm.evidence, arm.problems)
        part.seen = [s._replace(item=place[s.item]) for s in arm.seen if s.item in place]
        part.texts = [[row[column] for column in columns] for row in arm.texts]
        part.without_ids, part.without_margins = arm.without_ids, arm.without_margins
        for field_name in ARRAYS:
            setattr(part, field_name, getattr(arm, field_name)[:, columns])
        arms[name] = part
    run = msgspec.structs.replace(view.run, plan=plan)
    return RunView(view.folder, run, [view.items[column] for column in columns], arms)


def check_items(run: Run, items: Sequence[Item], path: Path) -> None:
    """Raise DamagedRun where items.jsonl is not what the plan names, or an item was altered."""
    ids = [item.item_id for item in items]
    if not ids:
        raise DamagedRun("names no item", file=path)
    if len(set(ids)) != len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise DamagedRun(f"item {twice} is there twice", file=path, field="item_id")
    if sorted(ids) != sorted(run.plan.items) or len(run.plan.items) != len(set(run.plan.items)):
        raise DamagedRun("does not hold the items of the plan in run.json", file=path)
    wrong = [i.item_id for i in items if i.item_id != item_id(i.question, i.gold)]
    # Ids of another make are left alone; one of ours that does not fit betrays a changed item.
    if wrong and len(wrong) < len(items):
        raise DamagedRun(
            f"question or gold of item {wrong[0]} was altered: its id does not fit", file=path
        )
