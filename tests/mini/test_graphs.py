"""Captured steps: replay runs the recording alone, counts it, and never falls back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import torch
from test_rowwise import SHORT
from tiny import prompt, request, tiny_model, tiny_session
from torch import Tensor

from evalsuite.errors import UsageError
from evalsuite.mini import captured, graphs, metadata, runner, speculate
from evalsuite.mini.engine import Session
from evalsuite.mini.forced import accept_none, natural
from evalsuite.mini.model import (
    decoder,
    delta_rule,
    indexer,
    linear_attention,
    mhc,
    moe,
    mtp,
    norms,
    sparse_attention,
)
from evalsuite.mini.model.sparse_ops import SparseOps
from evalsuite.mini.sequence import Sequence

MODEL_MODULES = (
    *(decoder, delta_rule, indexer, linear_attention, mhc, moe, mtp, norms, sparse_attention),
    *(metadata, speculate, captured, runner),
)


def session_with_graphs(k: int, fused: bool = True) -> Session:
    """A session with captured sizes two and three, one per kind for all tests."""
    return captured_session(k, fused)


@functools.cache
def captured_session(k: int, fused: bool) -> Session:
    """The session of one kind; tests leave it without requests."""
    return tiny_session(
        tiny_model(1, SHORT),
        k=k,
        graph=True,
        graph_batches=(2, 3),
        max_num_seqs=7,
        fused_drafts=fused,
        prefix_caching=False,
    )


def add_all(session: Session, count: int, budget: int = 9) -> list[Sequence]:
    """Queue requests and run their prefill."""
    added = [
        session.scheduler.add(request(f"g{i}", prompt(5 + i, i), budget)) for i in range(count)
    ]
    while any(not s.prefilled for s in added):
        session.step()
    return added


def finish(session: Session, sequences: list[Sequence]) -> list[list[int]]:
    """Run to the end; every request's tokens."""
    while session.scheduler.busy:
        session.step()
    return [s.tokens for s in sequences]


def forbidden(*args: Any, **kwargs: Any) -> Any:
    """Stands in for a function of the model that a replay must not call."""
    raise AssertionError("the model's Python ran")


@contextlib.contextmanager
def model_forbidden() -> Iterator[int]:
    """Every function of the model's modules raises; yields their number."""
    with contextlib.ExitStack() as stack:
        count = 0
        for module in MODEL_MODULES:
            for name, value in vars(module).items():
                if isinstance(value, FunctionType) and value.__module__ in {
                    m.__name__ for m in MODEL_MODULES
                }:
                    stack.enter_context(mock.patch.object(module, name, forbidden))
                    count += 1
        yield count


@pytest.mark.parametrize(("k", "fused"), [(0, True), (3, True), (3, False)])
def test_replay_runs_none_of_the_models_python(k: int, fused: bool) -> None:
    session = session_with_graphs(k, fused)
    expected = finish(session, add_all(session, 3))
    again = add_all(session, 3)
    with model_forbidden() as count:
        assert count > 40
        found = finish(session, again)
    assert found == expected


def test_what_is_forbidden_would_be_noticed() -> None:
    session = tiny_session(tiny_model(1, SHORT), k=3)
    add_all(session, 3)
    with model_forbidden(), pytest.raises(AssertionError, match="model's Python ran"):
        session.step()


def test_replays_are_counted_per_shape() -> None:
    session = session_with_graphs(3)
    table = session.options.blocks_per_request
    for count, sizes in [
        (1, {2: 1}),
        (2, {2: 1}),
        (3, {3: 1}),
        (4, {3: 1, 2: 1}),
        (7, {3: 2, 2: 1}),
    ]:
        added = add_all(session, count)
        session.reset_counts()
        session.step()
        expected = {
            (step, size, table): sizes.get(size, 0)
            for step in ("target", "drafts")
            for size in (2, 3)
        }
        assert session.runner.graphs.replays == expected
        assert session.counters.eager_decode_steps == 0
        for sequence in added:
            session.scheduler.drop(sequence)


def test_rebuilt_drafts_replay_one_program_per_draft_step() -> None:
    session = session_with_graphs(3, fused=False)
    added = add_all(session, 2)
    session.reset_counts()
    session.step()
    table = session.options.blocks_per_request
    replays = session.runner.graphs.replays
    assert replays["target", 2, table] == replays["draft first", 2, table] == 1
    assert replays["draft next", 2, table] == 2
    for sequence in added:
        session.scheduler.drop(sequence)


def test_fused_and_rebuilt_drafts_agree() -> None:
    fused, rebuilt = session_with_graphs(3), session_with_graphs(3, fused=False)
    pairs = list(zip(add_all(fused, 5, 20), add_all(rebuilt, 5, 20), strict=True))
    proposed = 0
    while fused.scheduler.busy:
        fused.step()
        rebuilt.step()
        for one, other in pairs:
            assert one.tokens == other.tokens
            assert one.drafts == other.drafts
            proposed += len(one.drafts)
    assert proposed > 100


def attend_on_the_host(query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
    """An attention kernel whose result hangs on a value read back to the host."""
    return query if int(slots.max()) > 10 else -query


def test_a_step_that_cannot_be_captured_is_an_error_with_its_reason() -> None:
    model = replace(tiny_model(1, SHORT), ops=SparseOps(attend_on_the_host))
    with pytest.raises(UsageError, match=r"cannot capture.*target"):
        tiny_session(model, graph=True, graph_batches=(2,))


def test_the_reason_of_a_failed_capture_is_told() -> None:
    with (
        mock.patch.object(graphs, "make_fx", side_effect=RuntimeError("out of memory")),
        pytest.raises(UsageError, match="out of memory"),
    ):
        tiny_session(tiny_model(1, SHORT), k=1, graph=True, graph_batches=(2,))


def test_a_missing_shape_is_never_run_eagerly() -> None:
    session = session_with_graphs(0)
    add_all(session, 1)
    key = ("target", 2, session.options.blocks_per_request)
    lost = session.runner.graphs._captured.pop(key)
    with pytest.raises(KeyError):
        session.step()
    assert not session.scheduler.busy
    session.runner.graphs._captured[key] = lost


def test_the_ladder_reaches_the_request_limit() -> None:
    options = tiny_session().options
    assert options.ladder() == ()
    assert replace(options, graph=True, max_num_seqs=6).ladder() == (1, 2, 4, 6)
    assert replace(options, graph=True, max_num_seqs=1).ladder() == (1,)
    assert replace(options, graph=True, graph_batches=(5, 2)).ladder() == (5, 2)


def test_static_inputs_hold_nothing_of_the_last_step() -> None:
    session = session_with_graphs(3)
    added = add_all(session, 3)
    session.step()
    for sequence in added[:2]:
        session.scheduler.drop(sequence)
    session.step()
    inputs = session.runner.captured(1).inputs.inputs
    for name, values in inputs._asdict().items():
        assert not torch.any(values[1:]), f"{name} of padded rows"
    session.scheduler.drop(added[2])


def test_counts_of_captured_steps() -> None:
    session = session_with_graphs(3)
    add_all(session, 3, budget=3)
    session.reset_counts()
    session.acceptance = accept_none()
    finish(session, [])
    session.acceptance = natural(3)
    counters = session.counters
    # Of three tokens the prompt gave one; the budget leaves one draft, then none.
    assert counters.steps_by_kind == {"verify:2": 1, "decode": 1}
    assert counters.routes == {"verify:2": {"torch_gather"}, "decode": {"torch_gather"}}
    assert (counters.drafts, counters.drafted_tokens) == (3, 3)
    assert counters.accepted_per_position == [0]
    assert counters.eager_decode_steps == 0
