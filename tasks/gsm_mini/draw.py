"""Random draws that come out the same on every platform and Python version.

Only `random.Random.random` is used: Python promises its sequence for a seed, and promises nothing
for `randint`, `choice` or `shuffle`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from gsm_mini.nouns import PEOPLE, THINGS, Noun, Person

T = TypeVar("T")


class Redraw(Exception):
    """The numbers drawn do not fit together; draw again."""


class Draw:
    """A seeded source of numbers, names and nouns at one difficulty `level` in 0..1."""

    def __init__(self, rng: random.Random, level: float) -> None:
        self._random = rng.random
        self.level = level

    def between(self, low: int, high: int) -> int:
        """A uniform integer in low..high, both included."""
        return low + int(self._random() * (high - low + 1))

    def sized(self, low: int, easy: int, hard: int) -> int:
        """An integer whose upper end grows from `easy` to `hard` with the level.

        The lower end rises too, by a quarter of the range at level 1.
        """
        high = easy + round((hard - easy) * self.level)
        return self.between(low + int((high - low) * 0.25 * self.level), high)

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self._random() < p

    def more(self) -> bool:
        """Whether to add an optional step: 15 % of the time at level 0, 85 % at level 1."""
        return self.chance(0.15 + 0.7 * self.level)

    def extra(self, low: int, easy: int, hard: int) -> int:
        """The number of an optional step, or 0 where the step is left out."""
        return self.sized(low, easy, hard) if self.more() else 0

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self._random() * len(options))]

    def some(self, options: Sequence[T], count: int) -> list[T]:
        """`count` different options in random order."""
        pool = list(options)
        return [pool.pop(int(self._random() * len(pool))) for _ in range(count)]

    def person(self) -> Person:
        """One person."""
        return self.pick(PEOPLE)

    def people(self, count: int) -> list[Person]:
        """Different people."""
        return self.some(PEOPLE, count)

    def thing(self) -> Noun:
        """One kind of thing."""
        return self.pick(THINGS)

    def things(self, count: int) -> list[Noun]:
        """Different kinds of things."""
        return self.some(THINGS, count)

    def need(self, condition: bool) -> None:
        """Ask for a new draw unless the condition holds."""
        if not condition:
            raise Redraw
