"""The second evaluation finds what is wrong: changed steps, changed gold, numbers from nowhere."""

from __future__ import annotations

import itertools
import random
import re
from fractions import Fraction

import pytest

import gsm_mini
from gsm_mini.verify import Mismatch, evaluate, stated_numbers, verify

QUESTION = "Ann has 3 bags with 4 pens in each bag and gives 5 pens to Ben. How many are left?"
ANSWER = "Ann has 3*4=<<3*4=12>>12 pens.\nLeft: 12-5=<<12-5=7>>7 pens.\n#### 7"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3*4", Fraction(12)),
        ("12-5-1", Fraction(6)),
        ("2+3*4", Fraction(14)),
        ("7/2", Fraction(7, 2)),
        ("150*30/100", Fraction(45)),
        ("1-2", Fraction(-1)),
    ],
)
def test_evaluate(expression: str, value: Fraction) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression", ["", "3*", "*3", "3**2", "3 + 4", "a", "1/0", "2.5*2", "(1)"]
)
def test_evaluate_refuses(expression: str) -> None:
    with pytest.raises(Mismatch):
        evaluate(expression)


def test_sound_answer() -> None:
    assert verify(QUESTION, ANSWER) == 7


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#### 7", "#### 8", "the last step gives 7, the answer says 8"),
        ("#### 7", "####7", "last line"),
        ("#### 7", "#### 7.0", "last line"),
        ("\n#### 7", "", "last line"),
        ("3*4=12>>12", "3*4=13>>13", "3\\*4 is 12, not 13"),
        ("3*4=12>>12", "3*4=12>>21", "text and annotation differ"),
        ("3*4=<<3*4", "3*5=<<3*4", "text and annotation differ"),
        ("3*4=<<3*4=12>>12", "3*9=<<3*9=27>>27", "9 comes from nowhere"),
        ("12-5=<<12-5=7>>7", "13-6=<<13-6=7>>7", "from nowhere"),
        ("<<3*4=12>>", "", "not exactly one annotated step"),
        ("Left: ", "Left: 5-4=<<5-4=1>>1 and ", "not exactly one annotated step"),
        ("12-5=<<12-5=7>>7", "5/2=<<5/2=2>>2", "5/2 is 5/2, not 2"),
        ("12-5=<<12-5=7>>7", "3-5=<<3-5=-2>>-2", "not -2"),
    ],
)
def test_damage_is_found(old: str, new: str, message: str) -> None:
    damaged = ANSWER.replace(old, new, 1)
    assert damaged != ANSWER
    with pytest.raises(Mismatch, match=message):
        verify(QUESTION, damaged)


def test_answer_without_steps() -> None:
    with pytest.raises(Mismatch, match="no step"):
        verify(QUESTION, "#### 7")


def test_one_changed_digit_never_passes_unseen() -> None:
    rng = random.Random(8)
    for problem in gsm_mini.generate(21, 300):
        place = rng.choice(
            [m.start() for m in re.finditer(r"\d(?=[^\n]*>>|\d*\Z)", problem.answer)]
        )
        other = rng.choice([d for d in "0123456789" if d != problem.answer[place]])
        damaged = problem.answer[:place] + other + problem.answer[place + 1 :]
        with pytest.raises(Mismatch):
            verify(problem.question, damaged)


def test_swapped_golds_are_found() -> None:
    problems = gsm_mini.generate(22, 200)
    for a, b in itertools.pairwise(problems):
        if a.gold != b.gold:
            with pytest.raises(Mismatch):
                verify(a.question, a.answer.replace(f"#### {a.gold}", f"#### {b.gold}"))


def test_words_state_numbers() -> None:
    assert stated_numbers("A third of 20 and twice as many, half of it in four games.") == {
        3,
        20,
        2,
        4,
    }
