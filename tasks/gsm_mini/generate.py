"""Seeded generation: a mix of difficulties and families becomes a stream of problems."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, islice

from gsm_mini.draw import Draw, Redraw
from gsm_mini.families import FAMILIES
from gsm_mini.nouns import SPARE
from gsm_mini.problem import Draft, Family, Problem


@dataclass(frozen=True)
class Mix:
    """What to draw from.

    Each problem's difficulty is uniform in low..high, within 0..1: it sets the size of the numbers,
    the share of optional steps and the share of distractors. `weights` holds relative weights of
    families; a family not named weighs 1.
    """

    low: float = 0.4
    high: float = 0.6
    weights: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise ValueError(f"Mix: need 0 <= low <= high <= 1, got {self.low} and {self.high}")
        unknown = sorted(set(self.weights) - set(FAMILIES))
        if unknown:
            raise ValueError(f"Mix.weights: unknown family {unknown[0]!r}")
        if any(not 0 <= weight < float("inf") for weight in self.weights.values()):
            raise ValueError("Mix.weights: a weight is negative or not finite")


DEFAULT_MIX = Mix()

# Topic -> sentence. Each names the person, so it may stand anywhere, and none brings in another
# person to whom a following "she" could point.
DISTRACTORS: dict[str, str] = {
    "street": "{name} lives at number {n}.",
    "weather": "It is {n} degrees outside.",
    "bus": "{name} came by bus {n}.",
    "shirt": "{name} wears shirt number {n}.",
    "price": "{a} costs ${n}, but {name} does not want one.",
    "birds": "{name} sees {n} birds on a roof.",
    "age": "{name} is {n} years old.",
    "house": "The street of {name} has {n} houses.",
    "time": "The walk home takes {name} {n} minutes.",
    "page": "{name} is on page {n} of a book.",
}


def _distract(draft: Draft, d: Draw) -> None:
    topics = [topic for topic in DISTRACTORS if topic not in draft.avoid]
    text = DISTRACTORS[d.pick(topics)].format(
        name=draft.who.name, n=d.between(18, 39), a=d.pick(SPARE).a.capitalize()
    )
    draft.facts.insert(d.pick((0, 1, len(draft.facts))), text)


def make_draft(kind: Family, d: Draw) -> Draft:
    """Draw one draft of a family, again and again until its numbers fit together."""
    while True:
        try:
            draft = kind.draft(d)
        except Redraw:
            continue
        if d.chance(0.1 + 0.6 * d.level):
            _distract(draft, d)
        return draft


def assemble(kind: Family, draft: Draft, difficulty: float) -> Problem:
    """Join a draft into a problem; ValueError when the family's second way disagrees."""
    gold = draft.work.value
    second = kind.check(draft.params)
    if second != gold:
        raise ValueError(f"family {kind.name}: steps give {gold}, check gives {second}")
    question = " ".join([*draft.facts, draft.ask])
    answer = "\n".join([*draft.work.lines, f"#### {gold}"])
    return Problem(question, answer, gold, kind.name, len(draft.work.lines), difficulty)


def iter_problems(seed: int, mix: Mix = DEFAULT_MIX) -> Iterator[Problem]:
    """An endless stream, the same for a seed and mix on every platform."""
    rng = random.Random(seed)
    kinds = [kind for name, kind in FAMILIES.items() if mix.weights.get(name, 1.0) > 0]
    if not kinds:
        raise ValueError("Mix.weights: no family is left")
    bounds = list(accumulate(mix.weights.get(kind.name, 1.0) for kind in kinds))
    while True:
        level = mix.low + (mix.high - mix.low) * rng.random()
        point = rng.random() * bounds[-1]
        kind = next(kind for kind, bound in zip(kinds, bounds, strict=True) if point < bound)
        yield assemble(kind, make_draft(kind, Draw(rng, level)), level)


def generate(seed: int, count: int, mix: Mix = DEFAULT_MIX) -> list[Problem]:
    """The first `count` problems of the stream of a seed."""
    return list(islice(iter_problems(seed, mix), count))
