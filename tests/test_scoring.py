"""Answers are read as a person would; every text has one outcome."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsuite import scoring
from evalsuite.numerals import canonical, plain

DATA = Path(__file__).parent / "data"
GSM8K = Path(__file__).parents[2] / "shared" / "data" / "gsm8k"
CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (DATA / "extraction.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_lm_eval_filters_are_kept_exactly(case: dict[str, Any]) -> None:
    assert scoring.strict_match(case["response"]) == case["expected_strict"]
    assert scoring.flexible_extract(case["response"]) == case["expected_flexible"]


def test_the_filters_agree_with_lm_eval_itself() -> None:
    extraction = pytest.importorskip("lm_eval.filters.extraction")
    strict = extraction.RegexFilter(r"#### (\-?[0-9\.\,]+)")
    flexible = extraction.RegexFilter(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
    for case in CASES:
        for ours, theirs in ((scoring.strict_match, strict), (scoring.flexible_extract, flexible)):
            raw = theirs.apply([[case["response"]]], [{}])[0][0]
            mine = ours(case["response"])
            stripped = raw.replace(",", "").replace("$", "").removesuffix(".")
            assert mine == (None if raw == "[invalid]" else stripped)


def test_a_person_would_read_the_same_value() -> None:
    wrong = []
    for case in CASES:
        found = scoring.read_number(case["response"])
        right = found is not None and found.equals(scoring.read_gold(case["gold"]))
        if right != case["correct"]:
            wrong.append(case["id"])
    assert len(wrong) <= 0.03 * len(CASES), wrong


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#### 3,456,789", "3456789"),
        ("#### -$12.50", "-12.5"),
        ("#### 1 234 567", "1234567"),
        (r"so \boxed{\frac{7}{8}}", "0.875"),
        (r"\boxed{12\%} and then 40", "12"),
        ("The answer is 2 1/2 cups.", "2.5"),
        ("The answer is 3½.", "3.5"),
        ("That makes $1.2 million.", "1200000"),
        ("It is 4 × 10^3 metres.", "4000"),
        ("Twenty-one marbles.", "21"),
        ("one hundred and five", "105"),
        ("The answer is not 12 but 15.", "15"),
        ("#### 7\n\nQuestion: What is 3 + 5?\nAnswer: 8\n#### 8", "7"),
        ("#### 7\nThe next problem gives:\n#### 8", "7"),
        ("#### 7\nWait, I made a mistake.\n#### 9", "9"),
        ("<think>4 or 5</think>It is 5.", "5"),
        ("So they need 8.33, which rounds up to 9 buses.", "9"),
        ("She pays 3 * 4 = $12 because each is $4.", "12"),
        ("答案是 42。", "42"),
        ("１，２５０", "1250"),
        ("−5", "-5"),
        ("between 10-14 it was 12", "12"),
    ],
)
def test_values(text: str, value: str) -> None:
    found = scoring.read_number(text)
    assert found is not None and str(found) == value


@pytest.mark.parametrize(
    "text", ["", "no number", "<think>\n12", "#### 4 or 5", "0" * 40, "7 7 7 7 7 7"]
)
def test_no_value(text: str) -> None:
    assert scoring.read_number(text) is None


def test_percent_equals_both_readings() -> None:
    found = scoring.read_number("The share is 15%.")
    assert found is not None
    assert found.equals(Fraction(15)) and found.equals(Fraction(15, 100))
    assert not found.equals(Fraction(1500))


@pytest.mark.parametrize(
    ("run", "value"),
    [
        ("9.800", Fraction(9800)),
        ("9.805", Fraction("9.805")),
        ("9.800,50", Fraction("9800.5")),
        ("1,00,000", Fraction(100000)),
        ("17,50", Fraction("17.5")),
        ("0.0.0", None),
        ("9" * 80, None),
    ],
)
def test_plain_runs(run: str, value: Fraction | None) -> None:
    assert plain(run) == value


@given(st.fractions(max_denominator=1000))
def test_canonical_is_exact(value: Fraction) -> None:
    assert Fraction(canonical(value)) == value


@pytest.mark.parametrize(
    ("text", "arguments", "outcome"),
    [
        (None, {}, "error"),
        ("#### 5", {"finish_reason": "error"}, "error"),
        ("#### 5", {"error": "timeout"}, "error"),
        ("#### 5", {"degenerate": True}, "degenerate"),
        ("So 24 * 15 = 3", {"finish_reason": "length"}, "truncated"),
        ("#### 1", {"finish_reason": "length"}, "truncated"),
        ("#### 5\nNow", {"finish_reason": "length"}, "correct"),
        ("nothing", {}, "no_answer"),
        ("#### 5.0", {}, "correct"),
        ("#### 6", {}, "wrong"),
        ("#### 6", {"gold": None}, "answered"),
    ],
)
def test_outcomes_in_order(text: str | None, arguments: dict[str, Any], outcome: str) -> None:
    given_arguments = {
        "gold": Fraction(5),
        "finish_reason": "stop",
        "degenerate": False,
    } | arguments
    assert scoring.score(text, **given_arguments).outcome == outcome


@given(
    st.text(max_size=300) | st.text(alphabet="0123456789.,-#$%/ =\nandor<>\\boxed{}", max_size=200),
    st.sampled_from([None, "stop", "length", "error"]),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_any_text_has_one_outcome(text: str, finish_reason: str | None, degenerate: bool) -> None:
    score = scoring.score(
        text, gold=Fraction(3), finish_reason=finish_reason, degenerate=degenerate
    )
    assert score.outcome in scoring.OUTCOMES
    found = scoring.read_number(text)
    assert found is None or 0 <= found.start < found.end <= len(text)


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"no GSM8K at {GSM8K}")
def test_gold_solutions_read_as_their_gold_values() -> None:
    unmarked = total = 0
    for line in (GSM8K / "test.jsonl").read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)["answer"]
        body, _, gold = answer.rpartition("#### ")
        value = Fraction(gold.replace(",", ""))
        assert scoring.read_gold(answer) == value
        found = scoring.read_number(body)
        unmarked += found is not None and found.equals(value)
        total += 1
    assert unmarked >= 0.98 * total
