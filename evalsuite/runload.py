"""Reading a run folder into a `RunView`: one pass over the records, judged anew as they come."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from evalsuite.assess import Assessment, assess
from evalsuite.degenerate import AnswerView
from evalsuite.degenerate.twin import twin
from evalsuite.degenerate.view import Reading
from evalsuite.errors import DamagedRun
from evalsuite.records import Item, Record
from evalsuite.runview import (
    CODE,
    EAGER,
    EQUAL,
    NO_IDS,
    ArmView,
    Problem,
    ProblemKind,
    RunView,
    Seen,
    check_items,
)
from evalsuite.storage import decode, read_evidence, read_items, read_run

Key = tuple[str | None, str | None, str | None, int]


class Tokens(NamedTuple):
    """Token ids and margins of one eager answer, compact."""

    ids: np.ndarray[tuple[int], np.dtype[np.int32]]
    margins: np.ndarray[tuple[int], np.dtype[np.float32]] | None


def load_run(folder: Path) -> RunView:
    """Read the run at `folder`.

    Raises UsageError where there is no folder, DamagedRun where run.json or items.jsonl is missing
    or wrong. What is wrong with one arm's files is told in its `problems`.
    """
    run = read_run(folder)
    path = folder / "items.jsonl"
    items = read_items(folder)
    check_items(run, items, path)
    by_id = {item.item_id: item for item in items}
    ordered = [by_id[one] for one in run.plan.items]
    shape = (run.plan.repeats, len(ordered))
    arms = {arm.name: ArmView(arm, shape) for arm in run.plan.arms}
    view = RunView(folder, run, ordered, arms)
    loader = _Loader(view)
    # Eager first: the others are compared with it.
    for name in sorted(arms, key=lambda name: name != EAGER):
        loader.load(arms[name])
    return view


class _Loader:
    def __init__(self, view: RunView) -> None:
        self._view = view
        self._index = {one: index for index, one in enumerate(view.ids)}
        self._known: list[dict[Key, Assessment]] = [{} for _ in view.items]
        self._tokens: dict[tuple[int, int], Tokens] = {}
        self._altered: dict[str, list[str]] = {}

    def load(self, arm: ArmView) -> None:
        """Fill `arm` from its folder."""
        folder = self._view.folder / arm.name
        path = folder / "records.jsonl"
        self._altered = {}
        try:
            for line, record in _records(path):
                self._take(arm, record, f"{arm.name}/records.jsonl:{line}")
        except DamagedRun as problem:
            kind: ProblemKind = "damaged" if path.exists() else "unfinished"
            arm.problems.append(Problem(kind, _relative(problem, self._view.folder)))
        for field, examples in self._altered.items():
            message = f"{field} of {len(examples)} records is not what their text and gold give"
            arm.problems.append(Problem("altered", message, tuple(examples[:10])))
        arm.seen.sort()
        self._load_evidence(arm, folder)

    def _load_evidence(self, arm: ArmView, folder: Path) -> None:
        if not (folder / "evidence.json").exists():
            message = f"{arm.name} was not run to its end: it has no evidence.json"
            arm.problems.append(Problem("unfinished", message))
            return
        try:
            arm.evidence = read_evidence(self._view.folder, arm.name)
        except DamagedRun as problem:
            arm.problems.append(Problem("damaged", _relative(problem, self._view.folder)))

    def _take(self, arm: ArmView, record: Record, place: str) -> None:
        index = self._index.get(record.item_id)
        problem: Problem | None = None
        if record.arm != arm.name:
            message = f"{place}: is a record of arm {record.arm}"
            problem = Problem("mislabelled", message, (record.item_id,))
        elif index is None:
            message = f"{place}: item {record.item_id} is not in the plan"
            problem = Problem("foreign", message, (record.item_id,))
        elif not 0 <= record.repeat < arm.shape[0]:
            message = f"{place}: repeat {record.repeat} is not in the plan"
            problem = Problem("foreign", message, (record.item_id,))
        elif arm.outcome[record.repeat, index] != -1:
            message = f"{place}: item {record.item_id} was answered before"
            problem = Problem("duplicate", message, (record.item_id,))
        if problem is not None or index is None:
            arm.problems.extend([problem] if problem is not None else [])
            return
        self._fill(arm, record, index)

    def _fill(self, arm: ArmView, record: Record, index: int) -> None:
        at = (record.repeat, index)
        assessed = self._assess(record, index, self._view.items[index])
        arm.outcome[at] = CODE[assessed.outcome]
        arm.block[at], arm.started[at], arm.ended[at] = record.block, record.started, record.ended
        arm.texts[record.repeat][index] = record.text
        arm.without_ids += record.token_ids is None
        arm.without_margins += record.margins is None
        if assessed.rule is not None:
            arm.seen.append(Seen(*at, assessed.rule, assessed.confidence == "high"))
        if self._view.same_extractor:
            for name in ("outcome", "answer", "rule", "confidence"):
                if getattr(record, name) != getattr(assessed, name):
                    self._altered.setdefault(name, []).append(record.item_id)
        if arm.name == EAGER:
            self._remember(at, record)
        elif EAGER in self._view.arms:
            self._compare(arm, record, at)

    def _assess(self, record: Record, index: int, item: Item) -> Assessment:
        ids = record.token_ids
        key = (record.text, record.finish_reason, record.error, hash(tuple(ids)) if ids else 0)
        known = self._known[index]
        if key not in known:
            known[key] = assess(
                record.text,
                gold=item.gold,
                token_ids=ids,
                finish_reason=record.finish_reason,
                question=item.question,
                error=record.error,
            )
        return known[key]

    def _remember(self, at: tuple[int, int], record: Record) -> None:
        if record.token_ids is not None:
            margins = record.margins
            self._tokens[at] = Tokens(
                np.array(record.token_ids, np.int32),
                None if margins is None else np.array(margins, np.float32),
            )

    def _compare(self, arm: ArmView, record: Record, at: tuple[int, int]) -> None:
        theirs = self._view.arms[EAGER].texts[at[0]][at[1]]
        if theirs is None or record.text is None:
            return
        arm.same_text[at] = same = record.text == theirs
        if not same:
            arm.seen.extend(_beside_twin(record.text, theirs, at))
        tokens = self._tokens.get(at)
        if tokens is None or record.token_ids is None:
            arm.divergence[at] = NO_IDS
            return
        arm.divergence[at], arm.margin[at] = _divergence(record, tokens)


def _divergence(record: Record, eager: Tokens) -> tuple[int, float]:
    """Index of the first token that differs from eager's (or EQUAL), and the margin there."""
    ours = np.array(record.token_ids, np.int32)
    shorter = min(len(ours), len(eager.ids))
    differ = np.flatnonzero(ours[:shorter] != eager.ids[:shorter])
    if len(differ) == 0 and len(ours) == len(eager.ids):
        return EQUAL, math.nan
    at = int(differ[0]) if len(differ) else shorter
    margins = [] if record.margins is None else record.margins
    known = [
        float(side[at]) for side in (eager.margins, margins) if side is not None and at < len(side)
    ]
    # Where only one of the two went on, only that one has a margin there.
    return at, known[0] if known else math.nan


def _beside_twin(text: str, theirs: str, at: tuple[int, int]) -> Iterator[Seen]:
    ours, others = text.split(), theirs.split()
    longer, shorter = (ours, others) if len(ours) >= len(others) else (others, ours)
    # Aligning two texts is slow, and only a text held whole inside the other can be a find.
    remaining = iter(longer)
    if not all(word in remaining for word in shorter):
        return
    for finding in twin(Reading(AnswerView(text, reference=theirs))):
        yield Seen(*at, finding.rule, finding.confidence == "high")


def _records(path: Path) -> Iterator[tuple[int, Record]]:
    decoder = msgspec.json.Decoder(Record, strict=True)
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    message = "the last line is torn: the run was interrupted"
                    raise DamagedRun(message, file=path, line=number)
                try:
                    yield number, decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    decode(line, Record, path, number)
                    raise
    except OSError as problem:
        raise DamagedRun(f"cannot be read: {problem.strerror}", file=path) from None


def _relative(problem: DamagedRun, folder: Path) -> str:
    """The problem in words that are the same wherever the run lies."""
    return str(problem).replace(f"{folder}/", "")
