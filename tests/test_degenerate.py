"""Detectors: recall on the corpus and on variants, silence on healthy text, speed."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from degenerate_variants import MAKERS
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsuite.degenerate import AnswerView, Finding, compare, distribution, find, strongest

DATA = Path(__file__).parent / "data"
GSM8K = Path(__file__).parents[2] / "shared" / "data" / "gsm8k"
# One answer alone does not prove these.
UNPROVABLE = {"wrong_digits", "fluent_nonsense", "runon_new_questions"}
SHOWN = {"text", "token_ids", "finish_reason", "prompt"}
# Lowest share of variants of a kind that any rule sees, and that a high one sees.
RECALL = {
    "loop": (0.97, 0.9), "glued_loop": (0.97, 0.9), "digits": (0.97, 0.9), "blank": (0.97, 0.9),
    "special": (0.97, 0.95), "undecoded": (0.95, 0.95), "mojibake": (0.95, 0.95),
    "doubled": (0.85, 0.5), "redrafted": (0.7, 0.05), "dropped": (0.3, 0.0),
    "unspaced": (0.8, 0.55), "salad": (0.95, 0.85), "shuffled": (0.75, 0.25),
    "switched": (0.85, 0.0), "counter": (0.95, 0.3), "cut_words": (0.6, 0.0), "echo": (0.95, 0.95),
    "nan_ids": (0.97, 0.97), "nothing": (1.0, 1.0), "streamed": (0.93, 0.93),
}  # fmt: skip


def rows(name: str) -> list[dict[str, Any]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def top(row: dict[str, Any]) -> Finding | None:
    fields = {name: row.get(name) for name in ("token_ids", "finish_reason", "prompt", "reference")}
    return strongest(find(AnswerView(row["text"], **fields)))


def test_degenerate_corpus() -> None:
    cases = [
        row
        for row in rows("degenerate.jsonl")
        if row["kind"] not in UNPROVABLE and row["detect_via"] in SHOWN
    ]
    found = [top(row) for row in cases]
    missed = [row["id"] for row, finding in zip(cases, found, strict=True) if finding is None]
    high = sum(finding is not None and finding.confidence == "high" for finding in found)
    assert len(missed) <= 0.05 * len(cases), missed
    assert high >= 0.6 * len(cases)


def test_healthy_corpus() -> None:
    cases = rows("healthy.jsonl")
    found = {row["id"]: finding for row in cases if (finding := top(row))}
    assert not [name for name, finding in found.items() if finding.confidence == "high"]
    assert len(found) <= 0.03 * len(cases), found


def healthy_pairs() -> list[tuple[str, str]]:
    return [
        (row["text"], row["prompt"])
        for row in rows("healthy.jsonl")
        if row["kind"] in ("plain_cot", "step_frames") and row.get("prompt")
    ]


@pytest.mark.parametrize("kind", MAKERS)
def test_recall_on_variants(kind: str) -> None:
    rng = random.Random(f"recall {kind}")
    pairs, found = healthy_pairs(), []
    for _ in range(120):
        text, prompt = rng.choice(pairs)
        found.append(top(MAKERS[kind](rng, text, prompt) | {"prompt": prompt}))
    any_rule, high_rule = RECALL[kind]
    assert sum(map(bool, found)) >= any_rule * len(found)
    assert sum(f is not None and f.confidence == "high" for f in found) >= high_rule * len(found)


def test_twin_shows_doubled_and_dropped_tokens() -> None:
    eager = "There are 6 rows of 4 chairs.\nThat is 6 * 4 = 24 chairs, so 20 are free.\n#### 20"
    doubled = eager.replace("chairs, so", "chairs,, so").replace("free.", "free..")
    dropped = eager.replace("chairs, so ", "chairs, ").replace("rows of", "rows")
    for text, rule in ((doubled, "doubled_against_twin"), (dropped, "dropped_against_twin")):
        findings = find(AnswerView(text, finish_reason="stop", reference=eager))
        assert rule in {finding.rule for finding in findings}
    assert not find(AnswerView(eager, finish_reason="stop", reference=eager))


def test_an_end_cut_by_the_budget_is_no_fault() -> None:
    text = "The walls take 5 * 325 = 1,625 bricks.\nSo 1,920 - 1,6"
    assert not find(AnswerView(text, finish_reason="length"))


@given(
    st.text(max_size=200),
    st.sampled_from([None, "stop", "length"]),
    st.none() | st.lists(st.integers(-1, 1 << 33), max_size=40),
    st.none() | st.text(max_size=60),
    st.none() | st.text(max_size=60),
)
@settings(max_examples=250, deadline=None)
def test_findings_lie_inside_the_text(
    text: str, finish: str | None, ids: list[int] | None, prompt: str | None, twin: str | None
) -> None:
    for finding in find(AnswerView(text, ids, finish, prompt, twin)):
        assert 0 <= finding.start <= len(text)
        assert text[finding.start :].startswith(finding.excerpt)
        assert finding.confidence in ("high", "low")


def test_ten_thousand_answers_are_quick() -> None:
    texts = [text for text, _ in healthy_pairs()]
    rng = random.Random(3)
    answers = [f"{n}. {rng.choice(texts)}\n{rng.choice(texts)}"[:500] for n in range(2000)]
    started = time.process_time()
    for answer in answers:
        find(AnswerView(answer, finish_reason="stop"))
    # 5 s for 10,000 on a free core; twice that where the machine is shared.
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    "unit", ["a", "1", "= ", "the the ", "####", "<|", "\n", "\u200b", "1, 2 "]
)
def test_a_long_line_does_not_hang(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    started = time.process_time()
    assert find(AnswerView(text, finish_reason="length", prompt=text[:2000]))
    assert time.process_time() - started < 10


@pytest.mark.skipif(not GSM8K.is_dir(), reason=f"no GSM8K at {GSM8K}")
def test_gold_solutions_are_healthy() -> None:
    low = total = 0
    for name in ("test.jsonl", "train.jsonl"):
        for line in (GSM8K / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            prompt = f"Question: {row['question']}\nAnswer:"
            finding = strongest(find(AnswerView(row["answer"], None, "stop", prompt)))
            assert finding is None or finding.confidence == "low", (row["answer"], finding)
            low, total = low + bool(finding), total + 1
    assert total == 8792 and low * 200 <= total


@pytest.mark.slow
def test_generated_answers_are_healthy() -> None:
    problems = pytest.importorskip("gsm_mini").generate(1, 100_000)
    low = 0
    for problem in problems:
        prompt = f"Question: {problem.question}\nAnswer:"
        finding = strongest(find(AnswerView(problem.answer, None, "stop", prompt)))
        assert finding is None or finding.confidence == "low", (problem.answer, finding)
        low += bool(finding)
    assert low * 200 <= len(problems)


def test_distributions_show_what_no_single_answer_does() -> None:
    texts = [re.sub(r"\d+", str(n), text) for n, (text, _) in enumerate(healthy_pairs())]
    twin = distribution(texts)
    same = {shift.feature: shift.z for shift in compare(twin, twin)}
    assert set(same.values()) == {0.0}
    copied = {
        shift.feature: shift.z for shift in compare(distribution([texts[0]] * len(texts)), twin)
    }
    assert copied["identical"] > 10
    longer = {
        shift.feature: shift.z for shift in compare(distribution([t + t for t in texts]), twin)
    }
    assert longer["length"] > 3 and longer["repetition"] > 3
    with pytest.raises(ValueError, match="pair"):
        compare(distribution(texts[1:]), twin)


@pytest.mark.parametrize(
    "text", ["A" * 200_000, "1" * 200_000, "a(" * 100_000, "x = " + "\n" * 90_000 + "b" * 110_000]
)
def test_text_without_any_space_takes_no_longer_than_other_text(text: str) -> None:
    started = time.process_time()
    find(AnswerView(text, finish_reason="length", prompt="How many?"))
    assert time.process_time() - started < 10
