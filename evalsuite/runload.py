"""Reading a run folder into a `RunView`: one pass over the records, judged anew as they come."""

from __future__ import annotations

import contextlib
import gc
import math
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from evalsuite.assess import Assessment, assess
from evalsuite.divergence import Drift, Tokens, beside_twin, first_divergence, packed
from evalsuite.errors import DamagedRun
from evalsuite.records import Item, Record
from evalsuite.runview import (
    ABSENT,
    ARRAYS,
    CODE,
    EAGER,
    EQUAL,
    NO_IDS,
    NO_TWIN,
    ArmView,
    Problem,
    ProblemKind,
    RunView,
    Seen,
    check_items,
)
from evalsuite.storage import decode, read_evidence, read_items, read_run

Key = tuple[str | None, str | None, str | None, int]


class _Columns:
    """What the records of one arm say, by slot (repeat * items + item), in plain lists.

    Writing single elements into arrays would take as long as decoding the records.
    """

    def __init__(self, size: int) -> None:
        self.outcome = [ABSENT] * size
        self.divergence = [NO_TWIN] * size
        self.margin = [math.nan] * size
        self.mean_margin = [math.nan] * size
        self.twin = Drift(size)
        self.drift, self.drift_at = self.twin.largest, self.twin.token
        self.drafted = [-1] * size
        self.accepted = [-1] * size
        self.same_text = [ABSENT] * size
        self.block = [-1] * size
        self.started = [0.0] * size
        self.ended = [0.0] * size
        self.texts: list[str | None] = [None] * size

    def into(self, arm: ArmView) -> None:
        """Hand everything over as arrays of shape (repeats, items)."""
        repeats, items = arm.shape
        self.twin.finish()
        for name in ARRAYS:
            before = getattr(arm, name)
            setattr(arm, name, np.array(getattr(self, name), before.dtype).reshape(arm.shape))
        arm.texts = [self.texts[at * items : (at + 1) * items] for at in range(repeats)]


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
    with _without_collection():
        # Eager first: the others are compared with it.
        for name in sorted(arms, key=lambda name: name != EAGER):
            loader.load(arms[name])
    return view


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Keep the cycle collector from walking over every record again and again: there are none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Loader:
    def __init__(self, view: RunView) -> None:
        self._view = view
        self._index = {one: index for index, one in enumerate(view.ids)}
        self._known: list[dict[Key, Assessment]] = [{} for _ in view.items]
        self._tokens: dict[int, Tokens] = {}
        self._eager_texts: list[str | None] = []
        self._altered: dict[str, list[str]] = {}
        self._same_extractor = view.same_extractor

    def load(self, arm: ArmView) -> None:
        """Fill `arm` from its folder."""
        folder = self._view.folder / arm.name
        path = folder / "records.jsonl"
        self._altered = {}
        columns = _Columns(arm.outcome.size)
        try:
            for line, record in _records(path):
                self._take(arm, columns, record, line)
        except DamagedRun as problem:
            kind: ProblemKind = "damaged" if path.exists() else "unfinished"
            arm.problems.append(Problem(kind, _relative(problem, self._view.folder)))
        columns.into(arm)
        if arm.name == EAGER:
            self._eager_texts = columns.texts
        for field, examples in self._altered.items():
            message = f"{field} of {len(examples)} records is not what their text and gold give"
            arm.problems.append(Problem("altered", message, tuple(sorted(examples)[:10])))
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

    def _take(self, arm: ArmView, columns: _Columns, record: Record, line: int) -> None:
        repeats, items = arm.shape
        index = self._index.get(record.item_id)
        kind: ProblemKind
        if record.arm != arm.name:
            kind, what = "mislabelled", f"is a record of arm {record.arm}"
        elif index is None:
            kind, what = "foreign", f"item {record.item_id} is not in the plan"
        elif not 0 <= record.repeat < repeats:
            kind, what = "foreign", f"repeat {record.repeat} is not in the plan"
        elif columns.outcome[record.repeat * items + index] != ABSENT:
            kind, what = "duplicate", f"item {record.item_id} was answered before"
        else:
            self._fill(arm, columns, record, index)
            return
        place = f"{arm.name}/records.jsonl:{line}"
        arm.problems.append(Problem(kind, f"{place}: {what}", (record.item_id,)))

    def _fill(self, arm: ArmView, columns: _Columns, record: Record, index: int) -> None:
        slot = record.repeat * arm.shape[1] + index
        assessed = self._assess(record, index, self._view.items[index])
        columns.outcome[slot] = CODE[assessed.outcome]
        columns.block[slot] = record.block
        columns.started[slot], columns.ended[slot] = record.started, record.ended
        columns.texts[slot] = record.text
        arm.without_ids += record.token_ids is None
        arm.without_margins += record.margins is None
        if record.margins:
            columns.mean_margin[slot] = sum(record.margins) / len(record.margins)
        if record.drafted is not None and record.accepted is not None:
            columns.drafted[slot], columns.accepted[slot] = record.drafted, record.accepted
        if assessed.rule is not None:
            high = assessed.confidence == "high"
            arm.seen.append(Seen(record.repeat, index, assessed.rule, high))
        if self._same_extractor:
            self._check_own_words(record, assessed)
        if arm.name == EAGER:
            self._remember(slot, record)
        elif self._eager_texts:
            self._compare(arm, columns, record, index)

    def _check_own_words(self, record: Record, assessed: Assessment) -> None:
        own = (record.outcome, record.answer, record.rule, record.confidence)
        if own != tuple(assessed):
            for name, mine, true in zip(assessed._fields, own, assessed, strict=True):
                if mine != true:
                    self._altered.setdefault(name, []).append(record.item_id)

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

    def _remember(self, slot: int, record: Record) -> None:
        if record.token_ids is not None:
            margins = record.margins
            self._tokens[slot] = Tokens(
                packed(record.token_ids), None if margins is None else array("f", margins)
            )

    def _compare(self, arm: ArmView, columns: _Columns, record: Record, index: int) -> None:
        slot = record.repeat * arm.shape[1] + index
        theirs = self._eager_texts[slot]
        if theirs is None or record.text is None:
            return
        same = record.text == theirs
        columns.same_text[slot] = int(same)
        if not same:
            arm.seen.extend(beside_twin(record.text, theirs, (record.repeat, index)))
        tokens = self._tokens.get(slot)
        if tokens is None or record.token_ids is None:
            columns.divergence[slot] = NO_IDS
            return
        found = first_divergence(packed(record.token_ids), record.margins, tokens)
        columns.divergence[slot], columns.margin[slot] = found
        if record.margins is not None and tokens.margins is not None:
            equal = len(record.margins) if found[0] == EQUAL else found[0]
            columns.twin.add(slot, record.margins, tokens.margins, equal)


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
