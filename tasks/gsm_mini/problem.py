"""What the generator makes: a problem, and the draft from which it is assembled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gsm_mini.draw import Draw
from gsm_mini.nouns import Noun, Person

Params = Mapping[str, int]


@dataclass(frozen=True)
class Problem:
    """One word problem in GSM8K's format."""

    question: str
    answer: str
    gold: int
    family: str
    steps: int
    difficulty: float

    def row(self) -> dict[str, str]:
        """The two fields of a GSM8K row."""
        return {"question": self.question, "answer": self.answer}


class Work:
    """The worked solution: one line per step, each with its calculator annotation.

    A unit is a noun, "$" for money, or "" for a bare number.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.value = 0

    def _line(self, lead: str, expression: str, value: int, unit: Noun | str) -> int:
        if value < 0:
            raise ValueError(f"a step went below zero: {expression}={value}")
        sign = "$" if unit == "$" else ""
        words = (
            ""
            if unit in ("$", "")
            else " " + (unit.form(value) if isinstance(unit, Noun) else unit)
        )
        start = f"{lead} " if lead else ""
        self.lines.append(f"{start}{expression}={sign}<<{expression}={value}>>{value}{words}.")
        self.value = value
        return value

    def add(self, lead: str, *terms: int, unit: Noun | str = "") -> int:
        """The sum of the terms."""
        return self._line(lead, "+".join(map(str, terms)), sum(terms), unit)

    def sub(self, lead: str, first: int, *rest: int, unit: Noun | str = "") -> int:
        """The first number less the others; ValueError below zero."""
        return self._line(lead, "-".join(map(str, (first, *rest))), first - sum(rest), unit)

    def mul(self, lead: str, *factors: int, unit: Noun | str = "") -> int:
        """The product of the factors."""
        return self._line(lead, "*".join(map(str, factors)), math.prod(factors), unit)

    def div(self, lead: str, a: int, b: int, unit: Noun | str = "") -> int:
        """The exact quotient; ValueError when it is not whole."""
        if a % b:
            raise ValueError(f"{a}/{b} is not whole")
        return self._line(lead, f"{a}/{b}", a // b, unit)

    def percent(self, lead: str, whole: int, rate: int, unit: Noun | str = "") -> int:
        """`rate` percent of `whole`; ValueError when it is not whole."""
        if whole * rate % 100:
            raise ValueError(f"{rate}% of {whole} is not whole")
        return self._line(lead, f"{whole}*{rate}/100", whole * rate // 100, unit)


@dataclass
class Draft:
    """A problem before assembly.

    `facts` are sentences in an order that must be kept, `ask` the final question, `params` every
    number the text states. `avoid` names the distractor topics that would confuse this story.
    """

    who: Person
    facts: list[str]
    ask: str
    work: Work
    params: dict[str, int]
    avoid: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Family:
    """One kind of equation: how to draw it, and a second way to its answer."""

    name: str
    draft: Callable[[Draw], Draft]
    check: Callable[[Params], int]


REGISTRY: dict[str, Family] = {}


def family(
    check: Callable[[Params], int],
) -> Callable[[Callable[[Draw], Draft]], Callable[[Draw], Draft]]:
    """Register a family under its function's name; `check` finds the answer without the steps."""

    def register(draft: Callable[[Draw], Draft]) -> Callable[[Draw], Draft]:
        name = draft.__name__
        if name in REGISTRY:
            raise ValueError(f"family {name} is defined twice")
        REGISTRY[name] = Family(name, draft, check)
        return draft

    return register
