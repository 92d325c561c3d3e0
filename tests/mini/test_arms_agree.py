"""Every arm of the trained miniature emits the eager arm's tokens."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import gsm_mini
from evalsuite.arms import parse_arm
from evalsuite.engines.base import Answer, Request
from evalsuite.engines.mini import MiniEngine, open_engine
from evalsuite.records import Evidence

DATA = Path(gsm_mini.__file__).parent / "data"
STOPS = ("Question:", "</s>", "<|im_end|>")
# A first divergence behind a smaller margin than this is rounding.
TIE = 1e-4


@functools.cache
def rows(name: str) -> list[dict[str, str]]:
    """Problems of one split."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def requests(count: int, budget: int) -> list[Request]:
    """Problems behind two worked ones; every other one has its words shuffled.

    A shuffled problem makes the model ramble, and the drafter err.
    """
    shots = "".join(
        f"Question: {r['question']}\nAnswer: {r['answer']}\n\n" for r in rows("fewshot")[:2]
    )
    out = []
    for number, row in enumerate(rows("test")[:count]):
        words = row["question"].split()
        if number % 2:
            random.Random(number).shuffle(words)
        text = f"{shots}Question: {' '.join(words)}\nAnswer:"
        out.append(Request(str(number), text, budget, STOPS, None))
    return out


def run_arm(engine: MiniEngine, name: str, asked: Sequence[Request]) -> dict[str, Answer]:
    """Answers of one arm by request."""
    return run_with_evidence(engine, name, asked)[0]


def run_with_evidence(
    engine: MiniEngine, name: str, asked: Sequence[Request]
) -> tuple[dict[str, Answer], Evidence]:
    """Answers of one arm by request, and what the arm did."""
    session = engine.start(parse_arm(name))
    found: dict[str, Answer] = {}
    session.generate(asked, lambda answer: found.__setitem__(answer.request_id, answer))
    evidence = session.evidence()
    session.close()
    return found, evidence


def diverging(found: dict[str, Answer], expected: dict[str, Answer]) -> list[tuple[str, float]]:
    """Requests whose tokens differ from the eager arm's, with its margin at the first of them."""
    out = []
    for name, answer in expected.items():
        ours, theirs = found[name].token_ids or (), answer.token_ids or ()
        if ours != theirs:
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), -1)  # noqa: B905
            out.append((name, (answer.margins or ())[at]))
    return out


def check_arms(engine: MiniEngine, names: Sequence[str], asked: list[Request]) -> None:
    """Every arm's answers are the eager arm's, and its evidence is that of such an arm."""
    engine.check(asked)
    expected = run_arm(engine, "eager", asked)
    for name in names:
        found, evidence = run_with_evidence(engine, name, asked)
        wrong = [one for one in diverging(found, expected) if one[1] > TIE]
        assert not wrong, f"{name}: {wrong}"
        same = [i for i in expected if found[i].token_ids == expected[i].token_ids]
        assert all(found[i].text == expected[i].text for i in same)
        assert all(found[i].finish_reason == expected[i].finish_reason for i in same)
        arm = parse_arm(name)
        assert bool(evidence.graph_replays) == arm.graph
        assert (evidence.eager_decode_steps == 0) == arm.graph
        assert len(evidence.accepted_per_position or []) == arm.mtp
        if arm.mtp:
            accepted = evidence.accepted_per_position or []
            assert accepted == sorted(accepted, reverse=True)
            assert 0 < accepted[0] < (evidence.drafts or 0), "natural drafts hit and miss"


def engine(**options: object) -> MiniEngine:
    """The embedded checkpoint on the CPU in float32."""
    return open_engine(
        model=None, dtype="float32", device="cpu", concurrency=6, options=dict(options)
    )


def test_captured_and_speculating_arms() -> None:
    check_arms(engine(graph_batches=[4]), ["graph", "mtp2", "mtp5"], requests(12, 64))


@pytest.mark.parametrize("share_slots", [True, False])
def test_eager_arms_with_few_blocks_in_random_order(share_slots: bool) -> None:
    few = engine(num_blocks=120, shuffle_seed=1, share_slots=share_slots)
    check_arms(few, ["eager-mtp3"], requests(8, 48))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_arms_on_more_problems() -> None:
    names = ["graph", *(f"mtp{k}" for k in range(1, 6)), *(f"eager-mtp{k}" for k in (1, 5))]
    check_arms(engine(graph_batches=[3, 6]), names, requests(48, 192))
