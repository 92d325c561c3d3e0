"""A second evaluation of a problem, from its text alone and in exact fractions.

Nothing here knows how problems are made: it reads the question and the answer as a marker would.
"""

from __future__ import annotations

import re
from fractions import Fraction

STEP = re.compile(r"([0-9+*/-]+)=\$?<<([^<>=]+)=([^<>=]+)>>(\S+?)(?=[ .]|$)")
GOLD = re.compile(r"#### (\d+)")
NUMBER = re.compile(r"\d+")
TOKEN = re.compile(r"\d+|[+*/-]")

# Numbers that a question states in words, or by naming a thing whose size everybody knows.
WORDS = {
    **{"half": 2, "twice": 2, "two": 2, "third": 3, "three": 3, "quarter": 4, "four": 4},
    **{"fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "week": 7, "dozen": 12, "hours": 60},
    **{"quarters": 25, "dimes": 10, "nickels": 5, "%": 100},
}
# To add or take one, to double and to halve need no stated number.
KNOWN = frozenset({1, 2})


class Mismatch(ValueError):
    """The text of a problem contradicts itself; the message names the line of the answer."""


def evaluate(expression: str) -> Fraction:
    """The exact value of whole numbers joined by + - * /; Mismatch when it is anything else."""
    tokens = TOKEN.findall(expression)
    if "".join(tokens) != expression or len(tokens) % 2 == 0:
        raise Mismatch(f"cannot read {expression!r}")
    terms: list[Fraction] = []
    for operator, token in zip(["+", *tokens[1::2]], tokens[::2], strict=True):
        if not token.isdigit():
            raise Mismatch(f"cannot read {expression!r}")
        number = Fraction(int(token))
        if operator == "*":
            terms[-1] *= number
        elif operator == "/":
            if number == 0:
                raise Mismatch(f"division by zero in {expression!r}")
            terms[-1] /= number
        elif operator in "+-":
            terms.append(number if operator == "+" else -number)
        else:
            raise Mismatch(f"cannot read {expression!r}")
    return sum(terms, Fraction(0))


def stated_numbers(question: str) -> set[int]:
    """Every number that the question states, in digits or in words."""
    words = re.findall(r"[a-z]+|%", question.lower())
    digits = {int(number) for number in NUMBER.findall(question)}
    return digits | {WORDS[word] for word in words if word in WORDS}


def _grounded(number: int, others: list[int], stated: set[int], before: set[int]) -> bool:
    """Whether a step may use a number.

    It is stated, known or was in a step before; one less than a stated number (the other parts of a
    fraction); or how often another operand goes into a value computed before.
    """
    if number in KNOWN or number in stated or number in before or number + 1 in stated:
        return True
    return any(value // other == number for value in before for other in others if other)


def _check_step(line: str, stated: set[int], before: set[int]) -> int:
    found = STEP.findall(line)
    if len(found) != 1 or line.count("<<") != 1:
        raise Mismatch(f"not exactly one annotated step: {line!r}")
    shown, expression, result, repeated = found[0]
    if shown != expression or repeated != result:
        raise Mismatch(f"text and annotation differ: {line!r}")
    if not result.isdigit() or evaluate(expression) != int(result):
        raise Mismatch(f"{expression} is {evaluate(expression)}, not {result}: {line!r}")
    operands = [int(number) for number in NUMBER.findall(expression)]
    for place, number in enumerate(operands):
        others = operands[:place] + operands[place + 1 :]
        if not _grounded(number, others, stated, before):
            raise Mismatch(f"{number} comes from nowhere: {line!r}")
    before.update(operands, [int(result)])
    return int(result)


def verify(question: str, answer: str) -> int:
    """The gold value, after every step was evaluated anew; Mismatch at the first contradiction.

    Each step has one annotation whose value is right, whole and not negative, and repeats what the
    text beside it says; uses only numbers that the question states, that are common knowledge or
    that came out before; and the last step's value is the one after `####`.
    """
    *steps, last = answer.split("\n")
    gold = GOLD.fullmatch(last)
    if gold is None:
        raise Mismatch(f"the last line is not '#### <whole number>': {last!r}")
    stated = stated_numbers(question)
    before: set[int] = set()
    values = [_check_step(line, stated, before) for line in steps]
    if not values:
        raise Mismatch("the answer has no step")
    if values[-1] != int(gold[1]):
        raise Mismatch(f"the last step gives {values[-1]}, the answer says {gold[1]}")
    return values[-1]
