"""Sessions: bad input, interrupts, preemption, chunk sizes, evidence."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rowwise import SHORT
from tiny import EOS, TINY, prompt, request, tiny_model, tiny_session

from evalsuite.errors import UsageError
from evalsuite.mini.engine import Session
from evalsuite.mini.forced import accept_counts, accept_none
from evalsuite.mini.sequence import GenerationRequest

ENDLESS = replace(SHORT, eos_token_id=None)
LENGTHS = (1, 4, 15, 16, 17, 32, 40)


def questions(budget: int = 8) -> list[GenerationRequest]:
    """Requests whose prompts end around pools and blocks."""
    return [request(f"q{i}", prompt(n, i), budget) for i, n in enumerate(LENGTHS)]


def answers(session: Session, asked: list[GenerationRequest]) -> dict[str, list[int]]:
    """Emitted tokens by request id."""
    return {
        s.request.request_id: s.tokens[len(s.request.prompt) :] for s in session.generate(asked)
    }


@functools.cache
def plain_answers(budget: int = 8) -> dict[str, list[int]]:
    """What a session with room for everything answers, one request at a time."""
    model = tiny_model(1, ENDLESS)
    found: dict[str, list[int]] = {}
    for asked in questions(budget):
        found |= answers(tiny_session(model, max_num_batched_tokens=128), [asked])
    return found


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"k": -1}, "k"),
        ({"k": 6}, "k"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_model_len": 1}, "max_model_len"),
        ({"max_model_len": 513}, "max_model_len"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens"),
        ({"max_num_batched_tokens": 15}, "max_num_batched_tokens"),
        ({"block_size": 24}, "block_size"),
        ({"block_size": 0}, "block_size"),
        ({"num_blocks": 1}, "num_blocks"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"num_snapshots": 0}, "num_snapshots"),
        ({"graph": True, "graph_batches": (0, 2)}, "graph_batches"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError, match=field):
        tiny_session(**options)


def test_drafts_without_an_mtp_layer() -> None:
    model = tiny_model(0, replace(TINY, num_nextn_predict_layers=0))
    assert answers(tiny_session(model), [request("r", [1, 2], 2)])
    with pytest.raises(UsageError, match="no MTP layer"):
        tiny_session(model, k=1)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (request("bad", [], 4), "prompt"),
        (request("bad", [1], 0), "max_tokens"),
        (request("bad", [1], -3), "max_tokens"),
        (request("bad", [1, 96], 4), "prompt"),
        (request("bad", [-1], 4), "prompt"),
        (request("bad", [1] * 120, 9), "128"),
        (request("bad", [1] * 60, 40), "cache"),
        (request("good", [1], 4), "request_id"),
    ],
)
def test_a_request_that_cannot_be_answered_stops_its_call_and_no_other(
    asked: GenerationRequest, field: str
) -> None:
    session = tiny_session(num_blocks=6)
    with pytest.raises(UsageError, match=f"request {asked.request_id}.*{field}"):
        answers(session, [request("good", [1, 2], 4), asked])
    assert not session.scheduler.busy
    assert set(answers(session, [request("good", [1, 2], 4)])) == {"good"}


def test_the_longest_request_that_fits() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=5, num_blocks=None, max_num_seqs=1)
    found = answers(session, [request("r", prompt(100), 28)])
    assert len(found["r"]) == 28
    assert session.pool.free_blocks == session.pool.num_blocks - 1


@pytest.mark.parametrize("k", [0, 1, 3, 5])
@pytest.mark.parametrize("share", [True, False])
def test_answers_up_to_the_models_length(k: int, share: bool) -> None:
    model = tiny_model(1, ENDLESS)
    options = {"max_model_len": 48, "max_num_seqs": 3, "share_slots": share}
    asked = [request(str(n), prompt(n, n), 48 - n) for n in (1, 16, 30, 31, 32, 33, 40, 47)]
    assert answers(tiny_session(model, k=k, **options), asked) == answers(
        tiny_session(model, max_model_len=48), asked
    )


@settings(deadline=None, derandomize=True, max_examples=15)
@given(
    budget=st.integers(16, 70),
    seqs=st.integers(1, 5),
    k=st.sampled_from([0, 2, 5]),
    caching=st.booleans(),
)
def test_chunks_of_any_size_give_the_same_tokens(
    budget: int, seqs: int, k: int, caching: bool
) -> None:
    session = tiny_session(
        tiny_model(1, ENDLESS),
        k=k,
        max_num_batched_tokens=budget,
        max_num_seqs=seqs,
        prefix_caching=caching,
    )
    assert answers(session, questions()) == plain_answers()


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("caching", [True, False])
def test_preempted_requests_give_the_same_tokens(k: int, caching: bool) -> None:
    session = tiny_session(
        tiny_model(1, ENDLESS),
        k=k,
        num_blocks=8,
        max_num_seqs=4,
        max_model_len=96,
        prefix_caching=caching,
        shuffle_seed=2,
    )
    assert answers(session, questions(30)) == plain_answers(30)
    assert session.scheduler.preemptions > 2


def test_calls_follow_each_other() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=2)
    for _ in range(3):
        assert answers(session, questions()) == plain_answers()


def test_a_call_that_its_caller_leaves_drops_its_requests() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=2, max_num_seqs=2)
    for _ in session.generate(questions()):
        break
    assert not session.scheduler.busy
    session.scheduler.check()
    assert answers(session, questions()) == plain_answers()


def test_two_calls_at_once_are_refused() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), max_num_seqs=2)
    first = session.generate(questions())
    next(first)
    with pytest.raises(RuntimeError, match="earlier call"):
        next(session.generate([request("late", [1], 1)]))
    assert len(list(first)) == len(LENGTHS) - 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("out of memory")])
@pytest.mark.parametrize("where", ["run", "plan", "absorb"])
def test_a_step_that_is_broken_off_leaves_a_usable_session(error: Any, where: str) -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=2, max_num_seqs=3, shuffle_seed=1)
    target, name = {
        "run": (session.runner, "run"),
        "plan": (session.scheduler, "_plan_prefill"),
        "absorb": (session, "_absorb"),
    }[where]
    for call in range(1, 6):
        real, calls = getattr(target, name), 0

        def broken(*args: Any, real: Any = real, call: int = call) -> Any:
            nonlocal calls
            calls += 1
            out = real(*args)
            if calls == call:
                raise error
            return out

        with (
            mock.patch.object(target, name, broken),
            pytest.raises((KeyboardInterrupt, RuntimeError)),
        ):
            answers(session, questions())
        assert not session.scheduler.busy
        assert session.pool.free_blocks == session.pool.num_blocks - 1
        if target is not session and where == "plan":
            target = session.scheduler
        assert answers(session, questions()) == plain_answers()


def test_labels_of_a_broken_step_are_forgotten() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=2)
    with (
        mock.patch.object(session.runner, "run", side_effect=RuntimeError("lost")),
        pytest.raises(RuntimeError, match="lost"),
    ):
        answers(session, questions()[::-1])  # the long prompts' blocks are labelled first
    assert answers(session, questions()) == plain_answers()


def test_counts_of_an_eager_session() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=3, max_num_seqs=1)
    session.acceptance = accept_counts([3, 1, 0])
    answers(session, [request("r", prompt(20), 10)])
    counters = session.counters
    # Of ten tokens the prompt gives one and the steps 4, 2, 1 and 2: the budget leaves the third
    # step two drafts, and the fourth one, which the pattern's three then accept.
    assert counters.steps_by_kind == {"prefill": 1, "verify:4": 2, "verify:3": 1, "verify:2": 1}
    assert (counters.drafts, counters.drafted_tokens) == (4, 9)
    assert counters.accepted_per_position == [3, 1, 1]
    assert counters.eager_decode_steps == 4
    assert counters.routes == {kind: {"torch_gather"} for kind in counters.steps_by_kind}
    assert counters.draft_length == 3
    session.reset_counts()
    assert (counters.drafts, counters.draft_length, counters.steps_by_kind) == (0, 3, {})


def test_counts_of_single_requests() -> None:
    session = tiny_session(tiny_model(1, ENDLESS), k=2, max_num_seqs=2)
    session.acceptance = accept_none()
    for sequence in session.generate([request("r", prompt(9), 5), request("s", prompt(3), 1)]):
        steps = sequence.request.max_tokens - 1
        assert sequence.steps == steps
        assert sequence.accepted_tokens == 0
        assert sequence.drafted_tokens == (2 + 2 + 1 + 0 if steps else 0)
        assert len(sequence.margins) == sequence.emitted
        assert all(margin >= 0 for margin in sequence.margins)
        assert 0 < sequence.started <= (sequence.first_token or 0) <= sequence.ended


def test_the_end_token_ends_an_answer() -> None:
    plain = answers(tiny_session(tiny_model(1, ENDLESS)), [request("r", prompt(5), 20)])["r"]
    ending = replace(ENDLESS, eos_token_id=plain[6])
    for k in (0, 4):
        session = tiny_session(tiny_model(1, ending), k=k)
        (sequence,) = session.generate([request("r", prompt(5), 20)])
        assert sequence.tokens[5:] == plain[: plain.index(plain[6]) + 1]
        assert sequence.finish_reason == "stop"
    assert EOS not in plain
