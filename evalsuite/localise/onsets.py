"""Where each wrong answer leaves eager's: the first token, or the first margin, that is another."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from evalsuite.policy import Policy
from evalsuite.reference import Reference, accepted_arm
from evalsuite.runview import ABSENT, EAGER, ArmView, Bools, RunView

# More items tell no more, and reading them takes time.
MOST_ITEMS = 256
Key = tuple[str, int]
# How the runner writes a record's first field.
FRONT = b'{"item_id":"'


class Brief(msgspec.Struct, frozen=True):
    """What of a record says where it leaves another's."""

    item_id: str
    repeat: int
    token_ids: list[int] | None
    margins: list[float] | None
    prompt_tokens: int | None


class Onset(NamedTuple):
    """The first token of an answer that is another than eager's, or whose margin is (`moved`).

    `item` and `repeat` are its place in the run, `tokens` the length of eager's answer, `margin`
    eager's there. `row` is the place among the `width` rows of the verification step that computed
    it, None where that is not known.
    """

    repeat: int
    item: int
    token: int
    moved: bool
    margin: float | None
    prompt_tokens: int | None
    tokens: int
    width: int = 1
    row: int | None = None


class Limits(NamedTuple):
    """How far margins may move, and the margin up to which a token may differ, by rounding."""

    drift: float
    rounding: float

    @classmethod
    def of(cls, run: RunView, policy: Policy) -> Limits:
        """Those of the run's type: where rounding leads to other keys any token may differ."""
        if run.exact:
            return cls(policy.equality.drift, policy.equality.rounding)
        return cls(np.inf, -np.inf)


class Onsets(NamedTuple):
    """The onsets of every arm but eager, complete for the first `items` items of the plan."""

    found: dict[str, list[Onset]]
    items: int


def onsets_of(run: RunView, reference: Reference | None, policy: Policy) -> Onsets:
    """The onsets of arms beside eager, of the first items that differ in any of them.

    Where margins move by rounding alone those count that moved by more; elsewhere tokens do.
    """
    others = [arm for name, arm in run.arms.items() if name != EAGER]
    if EAGER not in run.arms or not others:
        return Onsets({}, len(run.ids))
    limits = Limits.of(run, policy)
    differs = {arm.name: _differs(arm, limits).any(axis=0) for arm in others}
    places = np.flatnonzero(np.logical_or.reduce(list(differs.values()))).tolist()
    items = len(run.ids) if len(places) <= MOST_ITEMS else places[MOST_ITEMS]
    chosen = {
        (run.ids[at], repeat): at
        for at in places[:MOST_ITEMS]
        for repeat in range(run.run.plan.repeats)
    }
    theirs = _briefs(run.folder, EAGER, chosen)
    found = {}
    for name in [name for name, where in differs.items() if where.any()]:
        ours = _briefs(run.folder, name, chosen)
        pairs = [(chosen[key], ours[key], theirs[key]) for key in ours if key in theirs]
        onsets = [_onset(mine, eager, at, limits) for at, mine, eager in pairs]
        steady = _steady(reference, run, run.arms[name]) if run.exact else None
        found[name] = sorted(
            (_with_row(run.arms[name], one, steady) for one in onsets if one is not None),
            key=lambda one: (one.repeat, one.item),
        )
    return Onsets(found, items)


def _differs(arm: ArmView, limits: Limits) -> Bools:
    there = arm.outcome != ABSENT
    parted = (arm.divergence >= 0) & ~(arm.margin <= limits.rounding)
    return np.asarray(there & (parted | (np.nan_to_num(arm.drift) > limits.drift)))


def _briefs(folder: Path, arm: str, wanted: Collection[Key]) -> dict[Key, Brief]:
    """The wanted records; of a damaged file, which completeness tells of, those before the damage.

    They stand in the order of asking, near the front: the rest of the file is not read.
    """
    decoder = msgspec.json.Decoder(Brief)
    found: dict[Key, Brief] = {}
    names = {item.encode() for item, _ in wanted}
    try:
        with (folder / arm / "records.jsonl").open("rb") as file:
            for line in file:
                if len(found) == len(wanted):
                    break
                if _may_be(line, names):
                    brief = decoder.decode(line)
                    if (brief.item_id, brief.repeat) in wanted:
                        found[brief.item_id, brief.repeat] = brief
    except (OSError, msgspec.DecodeError):
        return found
    return found


def _may_be(line: bytes, names: set[bytes]) -> bool:
    """Whether a line may be a record of these items: most need not be decoded to see that not."""
    if not line.startswith(FRONT):
        return True
    return line[len(FRONT) : line.find(b'"', len(FRONT))] in names


def _onset(ours: Brief, eager: Brief, item: int, limits: Limits) -> Onset | None:
    if ours.token_ids is None or eager.token_ids is None:
        return None
    margins, others = np.array(ours.margins or []), np.array(eager.margins or [])
    ids, their_ids = np.array(ours.token_ids), np.array(eager.token_ids)
    shared = min(len(ids), len(their_ids))
    apart = np.flatnonzero(ids[:shared] != their_ids[:shared])
    token = int(apart[0]) if len(apart) else shared
    compared = min(token, len(margins), len(others))
    moved = np.flatnonzero(np.abs(margins[:compared] - others[:compared]) > limits.drift)
    if not len(moved) and token == len(ids) == len(their_ids):
        return None
    at = int(moved[0]) if len(moved) else token
    margin = float(others[at]) if at < len(others) else None
    if not len(moved) and margin is not None and margin <= limits.rounding:
        return None
    length = len(their_ids)
    return Onset(ours.repeat, item, at, bool(len(moved)), margin, eager.prompt_tokens, length)


def _with_row(arm: ArmView, one: Onset, steady: Bools | None) -> Onset:
    """The onset with its row, where the steps before it are known.

    Records count accepted drafts by answer, not by step. Where none was turned down every step is
    as wide as the next; and up to its onset an answer has the steps of the accepted one.
    """
    width = arm.arm.mtp + 1
    drafted, accepted = (int(part[one.repeat, one.item]) for part in (arm.drafted, arm.accepted))
    known = 0 < drafted == accepted or (steady is not None and bool(steady[one.item]))
    if width == 1 or one.token == 0 or not known:
        return one._replace(width=width)
    return one._replace(width=width, row=(one.token - 1) % width)


def _steady(reference: Reference | None, run: RunView, arm: ArmView) -> Bools | None:
    """Items in whose accepted answers no draft was turned down, of shape (items,)."""
    known = accepted_arm(reference, arm.name)
    if reference is None or known is None or not reference.same_numbers(run):
        return None
    if known.counts is None:
        return None
    drafted, accepted = known.counts
    kept = (drafted > 0) & (drafted == accepted)
    return np.asarray(kept.all(axis=0))
