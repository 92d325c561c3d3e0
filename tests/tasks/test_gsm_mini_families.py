"""Every family: both evaluations agree, the text states its numbers, and the English is sound."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from gsm_mini.draw import Draw
from gsm_mini.families import FAMILIES
from gsm_mini.generate import assemble, make_draft
from gsm_mini.problem import REGISTRY, Draft, Family, Problem, Work, family
from gsm_mini.verify import NUMBER, STEP, stated_numbers, verify

DRAWS = 200


def drawn(kind: Family) -> Iterator[tuple[Draft, Problem]]:
    for seed in range(DRAWS):
        rng = random.Random(seed)
        level = rng.random()
        draft = make_draft(kind, Draw(rng, level))
        yield draft, assemble(kind, draft, level)


@pytest.mark.parametrize("name", FAMILIES)
def test_both_evaluations_agree(name: str) -> None:
    for _, problem in drawn(FAMILIES[name]):
        assert verify(problem.question, problem.answer) == problem.gold


@pytest.mark.parametrize("name", FAMILIES)
def test_question_states_every_number(name: str) -> None:
    for draft, problem in drawn(FAMILIES[name]):
        hidden = {
            k: v for k, v in draft.params.items() if v and v not in stated_numbers(problem.question)
        }
        assert not hidden, problem.question


@pytest.mark.parametrize("name", FAMILIES)
def test_shape_of_question_and_answer(name: str) -> None:
    for _, problem in drawn(FAMILIES[name]):
        assert 2 <= problem.steps <= 6
        assert problem.steps == problem.answer.count("\n")
        assert 20 <= len(problem.question.split()) <= 70, problem.question
        assert len(problem.answer) <= 260, problem.answer
        assert problem.question.endswith("?")
        assert problem.gold > 0, problem.question


@pytest.mark.parametrize("name", FAMILIES)
def test_arithmetic_fits_in_the_head(name: str) -> None:
    for _, problem in drawn(FAMILIES[name]):
        for _, expression, result, _ in STEP.findall(problem.answer):
            assert int(result) <= 9999, problem.answer
            factors = [int(number) for number in expression.split("*") if number.isdigit()]
            if len(factors) == 2 and "*" in expression:
                small, large = sorted(factors)
                round_number = small % 100 == 0 or large % 100 == 0
                assert large <= 99 or (small <= 15 and large <= 999) or round_number, expression


# A count of one with a plural, of many with a singular, a wrong article, doubled or lost blanks.
BAD_ENGLISH = re.compile(
    r"(?<![\d$#.])\b1 (?:[a-z]+s|children)\b"
    r"|\b(?:[2-9]|\d\d+) (?:hour|minute|day|week|year|meter|liter)\b"
    r"|\b[Aa] (?=[aeio])|\b[Aa]n (?!hour)(?=[^aeiou])|  | [.,?]|[.?](?=[A-Z])|\{|\}"
)


@pytest.mark.parametrize("name", FAMILIES)
def test_english(name: str) -> None:
    for _, problem in drawn(FAMILIES[name]):
        found = BAD_ENGLISH.search(problem.question)
        assert found is None, problem.question
        words = re.sub(r"\S*<<.*?>>", "", problem.answer)
        assert re.search(r"(?<![\d$])\b1 [a-z]+s\b|  ", words) is None, problem.answer


@pytest.mark.parametrize("name", FAMILIES)
def test_second_person_is_another_one(name: str) -> None:
    for draft, problem in drawn(FAMILIES[name]):
        assert draft.who.name in problem.question


def wiring(work: Work) -> str:
    """The equations without numbers: q for a number of the question, r2 for the third result."""
    results: list[int] = []
    steps = []
    for line in work.lines:
        _, expression, result, _ = STEP.findall(line)[0]

        def name(match: re.Match[str]) -> str:
            value = int(match[0])
            places = [place for place, known in enumerate(results) if known == value]
            return f"r{places[-1]}" if places else "q"

        named = NUMBER.sub(name, expression)
        for sign in "+*":
            if set(re.findall(r"[-+*/]", named)) == {sign}:
                named = sign.join(sorted(named.split(sign)))
        steps.append(named)
        results.append(int(result))
    return ";".join(steps)


def test_families_differ_in_their_equations() -> None:
    assert len(FAMILIES) >= 30
    families: dict[str, set[str]] = defaultdict(set)
    for name, kind in FAMILIES.items():
        seen = Counter(wiring(draft.work) for draft, _ in drawn(kind))
        # A rare wiring comes from two numbers that happen to be equal.
        for equations, times in seen.items():
            if times > DRAWS // 10:
                families[equations].add(name)
    assert {equations: names for equations, names in families.items() if len(names) > 1} == {}


def test_disagreeing_check_is_an_error() -> None:
    kind = FAMILIES["change"]
    draft = make_draft(kind, Draw(random.Random(1), 0.5))
    draft.params["paid"] += 1
    with pytest.raises(ValueError, match="family change: steps give"):
        assemble(kind, draft, 0.5)


def test_family_names_are_unique() -> None:
    with pytest.raises(ValueError, match="defined twice"):
        family(check=lambda p: 0)(REGISTRY["change"].draft)


def test_work_refuses_fractions_and_negative_quantities() -> None:
    work = Work()
    with pytest.raises(ValueError, match="not whole"):
        work.div("", 7, 2)
    with pytest.raises(ValueError, match="not whole"):
        work.percent("", 15, 10)
    with pytest.raises(ValueError, match="below zero"):
        work.sub("", 3, 4)
    assert work.lines == []
