"""Generation by seed: the same everywhere, governed by the mix, never one of the held out."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gsm_mini
from gsm_mini.families import FAMILIES
from gsm_mini.generate import DISTRACTORS
from gsm_mini.verify import NUMBER, verify

DISTRACTED = re.compile(
    "|".join(re.sub(r"\\{.*?\\}", "[A-Za-z0-9 ]+?", re.escape(t)) for t in DISTRACTORS.values())
)

TASKS = Path(gsm_mini.__file__).parents[1]


def digest(problems: list[gsm_mini.Problem]) -> str:
    return hashlib.sha256("".join(p.question + p.answer for p in problems).encode()).hexdigest()


def test_same_seed_same_problems() -> None:
    first, second = gsm_mini.generate(3, 200), gsm_mini.generate(3, 200)
    assert first == second
    assert gsm_mini.generate(3, 50) == first[:50]
    assert list(islice(gsm_mini.iter_problems(3), 200)) == first
    assert gsm_mini.generate(4, 200) != first


def test_another_process_with_another_hash_seed_makes_the_same() -> None:
    code = (
        "import gsm_mini, hashlib;"
        "t = ''.join(p.question + p.answer for p in gsm_mini.generate(11, 300));"
        "print(hashlib.sha256(t.encode()).hexdigest())"
    )
    paths = os.pathsep.join([str(TASKS), str(TASKS.parent)])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == digest(gsm_mini.generate(11, 300))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64), low=st.floats(0, 1), span=st.floats(0, 1))
def test_any_seed_and_mix_verifies(seed: int, low: float, span: float) -> None:
    mix = gsm_mini.Mix(low, low + (1 - low) * span)
    for problem in gsm_mini.generate(seed, 20, mix):
        assert verify(problem.question, problem.answer) == problem.gold
        assert mix.low <= problem.difficulty <= mix.high


def test_row_is_gsm8k_format() -> None:
    problem = gsm_mini.generate(1, 1)[0]
    assert problem.row() == {"question": problem.question, "answer": problem.answer}
    assert problem.answer.split("\n")[-1] == f"#### {problem.gold}"


def test_difficulty_grows_numbers_steps_and_distractors() -> None:
    def figures(level: float) -> tuple[float, float, float]:
        problems = gsm_mini.generate(5, 2000, gsm_mini.Mix(level, level))
        digits = [len(n) for p in problems for n in NUMBER.findall(p.question)]
        distracted = sum(DISTRACTED.search(p.question) is not None for p in problems)
        return sum(digits) / len(digits), sum(p.steps for p in problems), distracted

    easy, middle, hard = figures(0.0), figures(0.5), figures(1.0)
    for place in range(3):
        assert easy[place] < middle[place] < hard[place]


def test_weights_choose_families() -> None:
    only = gsm_mini.Mix(weights={name: 0.0 for name in FAMILIES if name != "coins"})
    assert {p.family for p in gsm_mini.generate(1, 50, only)} == {"coins"}
    heavy = gsm_mini.Mix(weights={"coins": 100.0})
    share = sum(p.family == "coins" for p in gsm_mini.generate(1, 500, heavy)) / 500
    assert 0.5 < share < 0.9
    assert {p.family for p in gsm_mini.generate(1, 3000)} == set(FAMILIES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": -0.1}, "low"),
        ({"low": 0.7, "high": 0.3}, "low"),
        ({"high": 1.5}, "high"),
        ({"low": float("nan")}, "low"),
        ({"weights": {"nonsense": 1.0}}, "unknown family 'nonsense'"),
        ({"weights": {"coins": -1.0}}, "negative"),
        ({"weights": {"coins": float("nan")}}, "not finite"),
    ],
)
def test_bad_mix_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gsm_mini.Mix(**arguments)  # type: ignore[arg-type]


def test_no_family_left() -> None:
    with pytest.raises(ValueError, match="no family is left"):
        gsm_mini.generate(1, 1, gsm_mini.Mix(weights=dict.fromkeys(FAMILIES, 0.0)))
