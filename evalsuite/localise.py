"""Where a fault is likely to sit, from a failed run alone: which arms part, where, and how.

Reads records, nothing else. The families are those of the fault catalogue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evalsuite.records import Record
from evalsuite.reference import Reference
from evalsuite.runview import ABSENT, EAGER, ArmView, RunView
from evalsuite.storage import read_records
from evalsuite.verdict import Verdict

# What divides positions in this architecture: pool, cache block, and the keys that are selected.
POOL, BLOCK, TOPK = 4, 16, 128
WORDS = {
    "A": "dispatch or metadata of verification rows",
    "B": "alignment of rows, positions or padding",
    "C": "the indexer, its pools or cache addressing",
    "D": "recurrent state, prefix cache or rollback",
    "E": "the drafter alone",
    "F": "graph replay",
    "G": "numerics or uninitialised memory",
    "H": "text that a server hands out",
    "S": "the server's configuration or the harness",
}
# Rules of degeneration by which an answer says the same again.
LOOPS = frozenset(
    {
        *("loop", "inner_loop", "few_words", "near_loop", "drifting_loop", "glued_loop"),
        *("id_loop", "doubled_tokens", "doubled_against_twin", "repeated_marker"),
        "repeated_whole",
    }
)
LOWER, LOST = 0.05, 0.2
# How far margins of equal tokens may lie apart by rounding.
ROUNDING = {"float32": 0.01, "float64": 0.01}
ROUGH = 1.5
EARLY = 5


@dataclass(frozen=True)
class Parting:
    """The first token at which an answer parts from eager's.

    `position` is the token's place in its request, `kind` and `width` those of the rows that an
    arm verifies, `neighbours` ids of items that were in progress at the same time.
    """

    arm: str
    item: str
    token: int
    position: int | None
    kind: str
    margin: float | None
    neighbours: tuple[str, ...]
    agree: tuple[str, ...]

    def __str__(self) -> str:
        if self.position is None:
            place = ""
        else:
            behind = "behind" if self.position >= TOPK else "within"
            place = (
                f", position {self.position} ({self.position % POOL} of its pool of {POOL}, "
                f"{self.position % BLOCK} of its block of {BLOCK}, {behind} the top-k of {TOPK})"
            )
        agreeing = f"; {', '.join(self.agree)} agree with eager" if self.agree else ""
        return (
            f"{self.arm} parts from eager on item {self.item} at token {self.token}{place}, in "
            f"{self.kind} rows beside {len(self.neighbours)} other requests{agreeing}"
        )


@dataclass(frozen=True)
class Localisation:
    """The likeliest family, the sentence that says why, and the first parting of each arm."""

    family: str
    sentence: str
    partings: tuple[Parting, ...]


def localise(run: RunView, reference: Reference, verdict: Verdict) -> Localisation:
    """Say where the fault behind a failed verdict is likely to sit."""
    signs = _Signs(run, reference, verdict)
    family, why = _family(signs)
    seen = _symptoms(run, reference)
    if seen:
        why = f"{', '.join(seen)}: {why}"
    partings = partings_of(run)
    told = f"; {partings[0]}" if partings else ""
    return Localisation(family, f"{why}: {WORDS[family]}{told}", partings)


def _symptoms(run: RunView, reference: Reference) -> list[str]:
    """What answers and routes show by themselves: repeated tokens, rows at another kernel."""
    found = []
    rules = {seen.rule for arm in run.arms.values() for seen in arm.seen if seen.high}
    if rules & LOOPS:
        found.append("repeated tokens")
    elif rules:
        found.append(f"degenerate answers ({', '.join(sorted(rules))})")
    lost = [name for name in run.arms if _lost(run, reference, name)]
    if lost:
        found.append(f"hardly an answer of {' and '.join(lost)} right")
    for kernel, kinds in _moved(run, reference).items():
        found.append(f"{' and '.join(sorted(kinds))} rows routed to {kernel}")
    return found


def _lost(run: RunView, reference: Reference, name: str) -> bool:
    """Whether an arm is right on less than a fifth of what it should be right on."""
    known = reference.arms.get(name)
    if known is None:
        return False
    return float(run.arms[name].correct.mean()) < LOST * float(known.correct.mean())


def _moved(run: RunView, reference: Reference) -> dict[str, set[str]]:
    """Kernels that rows went to and should not have, with the kinds of those rows."""
    accepted = reference.hardware.get(run.hardware_class)
    moved: dict[str, set[str]] = {}
    for name, arm in run.arms.items():
        known = {} if accepted is None else accepted.routes.get(name, {})
        routes = (arm.evidence.routes if arm.evidence is not None else None) or {}
        for kind, kernel in routes.items():
            if kind in known and known[kind] != kernel:
                moved.setdefault(kernel, set()).add(kind.partition(":")[0])
    return moved


def partings_of(run: RunView) -> tuple[Parting, ...]:
    """The first parting from eager of every arm, over the items in the plan's order."""
    found = []
    for name, arm in run.arms.items():
        where = np.argwhere(arm.divergence >= 0)
        if name == EAGER or not len(where):
            continue
        repeat, item = (int(axis) for axis in where[0])
        agree = [
            other
            for other, view in run.arms.items()
            if other not in (name, EAGER) and view.divergence[repeat, item] == -1
        ]
        found.append(_parting(run, arm, repeat, item, agree))
    return tuple(found)


def _parting(run: RunView, arm: ArmView, repeat: int, item: int, agree: Sequence[str]) -> Parting:
    token, margin = int(arm.divergence[repeat, item]), float(arm.margin[repeat, item])
    identifier = run.ids[item]
    records = {r.item_id: r for r in read_records(run.folder, arm.name) if r.repeat == repeat}
    ours = records[identifier]
    position = None if ours.prompt_tokens is None else ours.prompt_tokens + token
    return Parting(
        arm=arm.name,
        item=identifier,
        token=token,
        position=position,
        kind=_kind(arm, token),
        margin=margin if np.isfinite(margin) else None,
        neighbours=tuple(_neighbours(ours, records.values())),
        agree=tuple(agree),
    )


def _kind(arm: ArmView, token: int) -> str:
    if token == 0:
        return "prefill"
    return f"verify:{arm.arm.mtp + 1}" if arm.arm.mtp else "decode"


def _neighbours(ours: Record, records: object) -> list[str]:
    return [
        other.item_id
        for other in records  # type: ignore[attr-defined]
        if other.item_id != ours.item_id
        and other.block == ours.block
        and other.started < ours.ended
        and ours.started < other.ended
    ]


class Drift(NamedTuple):
    """Shares of answers whose margins leave eager's while their tokens are still equal: at the
    first token, which a prefill gives; at the next few; anywhere."""

    first: float
    early: float
    ever: float


def drift_of(run: RunView, name: str) -> Drift:
    """Compare an arm's margins with eager's, token by token."""
    allowed = ROUNDING.get(run.run.dtype, ROUGH)
    theirs = {(r.item_id, r.repeat): r for r in read_records(run.folder, EAGER)}
    counts = [0, 0, 0]
    compared = 0
    for ours in read_records(run.folder, name):
        eager = theirs.get((ours.item_id, ours.repeat))
        if eager is None or not ours.margins or not eager.margins:
            continue
        compared += 1
        off = list(_apart(ours, eager, allowed))
        counts[0] += off[:1] == [True]
        counts[1] += any(off[1:EARLY])
        counts[2] += any(off)
    return Drift(*(count / max(compared, 1) for count in counts))


def _apart(ours: Record, eager: Record, allowed: float) -> Iterator[bool]:
    ids, margins = ours.token_ids or [], ours.margins or []
    others, limits = eager.token_ids or [], eager.margins or []
    for token, margin, other, limit in zip(ids, margins, others, limits, strict=False):
        if token != other:
            return
        yield abs(margin - limit) > allowed


class _Signs:
    """What a failed run shows, put in words that families can be told by."""

    def __init__(self, run: RunView, reference: Reference, verdict: Verdict) -> None:
        self.run, self.reference = run, reference
        self.failing = {f.check for f in verdict.reasons()}
        self.messages = " ".join(f.message for f in verdict.reasons())
        self.wrong = {name for name in run.arms if self._wrong(name)}
        self.graphs = {n for n, a in run.arms.items() if a.arm.graph}
        self.drafts = {n for n, a in run.arms.items() if a.arm.mtp}
        self.moved = _moved(run, reference)

    def _wrong(self, name: str) -> bool:
        """Whether an arm's answers differ: from eager's, or eager's own from the accepted ones."""
        arm = self.run.arms[name]
        if name != EAGER:
            return bool((arm.divergence >= 0).any() or (arm.same_text == 0).any())
        accepted = self.reference.arms.get(name)
        if accepted is None:
            return False
        there = arm.outcome != ABSENT
        return bool(((arm.outcome != accepted.outcome[: arm.shape[0]]) & there).any())

    def parted(self) -> list[tuple[int, float]]:
        """Token and margin of every parting of the wrong arms."""
        return [
            (int(arm.divergence[at]), float(arm.margin[at]))
            for name in sorted(self.wrong - {EAGER})
            for arm in [self.run.arms[name]]
            for at in map(tuple, np.argwhere(arm.divergence >= 0))
        ]

    def lowered(self) -> float:
        """The largest fall of acceptance at any position, 0 where there is none."""
        falls = [0.0]
        for name in self.drafts:
            evidence, known = self.run.arms[name].evidence, self.reference.arms.get(name)
            if evidence is None or not evidence.drafts or known is None or known.drafts is None:
                continue
            counts = zip(evidence.accepted_per_position or [], known.drafts.accepted, strict=False)
            falls += [b / known.drafts.drafts - a / evidence.drafts for a, b in counts]
        return max(falls)

    def drift(self) -> Drift:
        """The largest drift of margins over the arms that draft."""
        found = [drift_of(self.run, name) for name in sorted(self.drafts)]
        if EAGER not in self.run.arms or not found:
            return Drift(0.0, 0.0, 0.0)
        return Drift(*(max(column) for column in zip(*found, strict=True)))

    def text_only(self) -> bool:
        """Whether texts differ while token ids are eager's."""
        return any(
            ((arm.same_text == 0) & (arm.divergence == -1)).any()
            for name, arm in self.run.arms.items()
            if name != EAGER
        )

    def exchanged(self) -> bool:
        """Whether an arm's wrong answers are right answers to other items."""
        eager = (
            set(filter(None, self.run.arms[EAGER].texts[0])) if EAGER in self.run.arms else set()
        )
        for name in self.wrong - {EAGER}:
            arm = self.run.arms[name]
            strange = [
                text for at, text in enumerate(arm.texts[0]) if arm.same_text[0, at] == 0 and text
            ]
            if strange and sum(text in eager for text in strange) > len(strange) / 2:
                return True
        return False

    def empty(self) -> bool:
        """Whether an arm that drafts hands out empty texts."""
        return any(text == "" for name in self.drafts for text in self.run.arms[name].texts[0])


def _family(signs: _Signs) -> tuple[str, str]:
    for rule in (_by_files, _by_configuration, _by_text, _by_drafts, _by_arms):
        found = rule(signs)
        if found is not None:
            return found
    return _by_pattern(signs)


def _by_files(signs: _Signs) -> tuple[str, str] | None:
    if "completeness" not in signs.failing:
        return None
    if "not finite" in signs.messages or "no answer was obtained" in signs.messages:
        broken = {n for n, a in signs.run.arms.items() if a.are("error").any()}
        if broken == set(signs.run.arms):
            return "G", "no arm's logits are numbers"
        return "S", f"scores of {', '.join(sorted(broken))} are not numbers"
    return "S", "records are missing, foreign or copied"


def _by_configuration(signs: _Signs) -> tuple[str, str] | None:
    if signs.moved:
        return "A", "rows went to another kernel than the baseline's"
    # Rows of a kind that the baseline never met come of answers that end elsewhere.
    if "route" in signs.failing and (not signs.wrong or "baseline names no" not in signs.messages):
        return "S", "the configuration that ran is not the one asked for"
    return None


def _by_text(signs: _Signs) -> tuple[str, str] | None:
    if signs.text_only():
        return "H", "texts differ while token ids agree"
    if signs.exchanged():
        return "S", "answers are right answers to other items"
    if signs.empty():
        return "S", "answers are empty"
    if "truncation" in signs.failing and not signs.parted():
        return "S", "answers end early and are right until then"
    return None


def _by_drafts(signs: _Signs) -> tuple[str, str] | None:
    if signs.wrong:
        if "above the ceiling" in signs.messages or "suspicious" in signs.messages:
            return "S", "more drafts are accepted than ever before, and answers are wrong"
        return None
    if "acceptance" not in signs.failing:
        return None
    eager = signs.drafts - signs.graphs
    if signs.graphs and not any(f"{name} accepts" in signs.messages for name in eager):
        return "F", "answers are right, and acceptance fell only under replay"
    drift = signs.drift()
    if drift.early > LOWER:
        return "B", f"answers are right, yet margins of {drift.early:.0%} of them leave eager's"
    return "E", "answers are right to the last margin, and acceptance fell"


def _by_arms(signs: _Signs) -> tuple[str, str] | None:
    wrong = signs.wrong
    if EAGER in wrong:
        return None
    if wrong and wrong <= signs.graphs and "graph" in signs.run.arms:
        eager_drafts = signs.drafts - signs.graphs
        if "graph" in wrong or eager_drafts:
            return "F", "only arms that replay graphs are wrong"
    return None


def _by_pattern(signs: _Signs) -> tuple[str, str]:
    if EAGER in signs.wrong:
        return "C", "every arm is wrong alike, eager too"
    fall, drift = signs.lowered(), signs.drift()
    if drift.first > LOWER:
        return "D", f"{_named(signs)}; {drift.first:.0%} of the answers part before they begin"
    if drift.early > 0.5:
        told = f"{_named(signs)} from their first rows on"
        return ("A" if fall > LOWER else "B"), f"{told}; acceptance fell by {fall:.0%}"
    return "D", f"{_named(signs)}, and only later in an answer; acceptance fell by {fall:.0%}"


def _named(signs: _Signs) -> str:
    widths = Counter(signs.run.arms[name].arm.mtp + 1 for name in signs.wrong if name != EAGER)
    return f"only widths {', '.join(str(width) for width in sorted(widths))} are wrong"
