"""Row-wise truth: every row, state and draft of ragged steps against the request alone."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import TINY, prompt, request, tiny_model, tiny_session
from truth import Observer, Reference, drain

from evalsuite.mini.checkpoint import EMBEDDED, cast, load_checkpoint
from evalsuite.mini.config import LINEAR, SPARSE
from evalsuite.mini.forced import accept_counts, natural, per_request
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.sequence import Sequence
from evalsuite.mini.weights import fuse

# The number of examples is multiplied by this for a longer search.
SEARCH = int(os.environ.get("EVALSUITE_SEARCH", "1"))
# Around pools of 4, blocks of 16 and the tiny models' index_topk of 16.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 14, 15, 16, 17, 19, 20, 21, 31, 32, 33, 36, 47, 48, 49)
MODERATE = settings(deadline=None, derandomize=SEARCH == 1, suppress_health_check=list(HealthCheck))
# Up to five requests: below the captured size of three, and split into three and two. The longest
# prompt with the largest budget fills the length, and drafting goes beyond it.
CAPTURED = {"graph": True, "graph_batches": (3,), "max_num_seqs": 5, "max_model_len": 58}
# Fewer layers are captured sooner.
SHORT = replace(
    TINY, num_hidden_layers=2, layer_types=(LINEAR, SPARSE), mlp_layer_types=("dense", "sparse")
)


class Asked(NamedTuple):
    """One request of a batch: prompt length, the prompt's seed, budget, forced counts."""

    length: int
    seed: int
    budget: int
    counts: list[int] | None


asked = st.builds(
    Asked,
    st.sampled_from(LENGTHS),
    st.integers(0, 2),
    st.integers(1, 9),
    st.none() | st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
batches = st.lists(asked, min_size=1, max_size=6)


@functools.cache
def observer(model: Model, k: int, share_slots: bool = True, **options: object) -> Observer:
    """One observed session per shape, shared by all examples: each one is traffic for the next."""
    session = tiny_session(model, k=k, share_slots=share_slots, shuffle_seed=k, **options)
    return Observer(session, reference(model, k, share_slots))


@functools.cache
def reference(model: Model, k: int, share_slots: bool) -> Reference:
    """Reference shared by the sessions of one kind."""
    return Reference(model, k, share_slots)


def check_batch(watch: Observer, batch: list[Asked]) -> list[Sequence]:
    """Answer a batch, every row and state checked."""
    session, k = watch.session, watch.session.options.k
    patterns = {
        str(i): accept_counts(one.counts) for i, one in enumerate(batch) if one.counts is not None
    }
    session.acceptance = per_request(patterns, natural(k))
    added = [
        session.scheduler.add(request(str(i), prompt(one.length, one.seed), one.budget))
        for i, one in enumerate(batch)
    ]
    try:
        done = drain(watch)
    finally:
        for sequence in added:
            session.scheduler.drop(sequence)
    assert sorted(s.request.request_id for s in done) == sorted(str(i) for i in range(len(batch)))
    assert session.pool.free_blocks == session.pool.num_blocks - 1
    return done


@settings(MODERATE, max_examples=30 * SEARCH)
@given(k=st.integers(0, 5), share=st.booleans(), scarce=st.booleans(), batch=batches)
def test_eager_steps(k: int, share: bool, scarce: bool, batch: list[Asked]) -> None:
    few = {"num_blocks": 8, "max_model_len": 64, "max_num_batched_tokens": 32}
    check_batch(observer(tiny_model(), k, share, **(few if scarce else {})), batch)


@pytest.mark.parametrize(
    ("k", "options"),
    [
        (0, {}),
        (1, {}),
        (2, {"share_slots": False, "num_blocks": 10}),
        (3, {"fused_drafts": False}),
        (4, {"share_slots": False, "fused_drafts": False}),
        (5, {}),
    ],
)
@settings(MODERATE, max_examples=4 * SEARCH)
@given(batch=batches)
def test_captured_steps(k: int, options: dict[str, bool | int], batch: list[Asked]) -> None:
    watch = observer(tiny_model(1, SHORT), k, **options, **CAPTURED)
    check_batch(watch, batch)
    assert watch.session.counters.eager_decode_steps == 0


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("start", [17, 18, 19, 20])
def test_rejection_at_every_position_and_alignment(graph: bool, start: int) -> None:
    watch = observer(tiny_model(1, SHORT), 5, **(CAPTURED if graph else {"max_num_seqs": 5}))
    before = watch.checked_states
    check_batch(watch, [Asked(start, n, 7 + n, [n, 0, 5 - n]) for n in range(6)])
    assert watch.checked_states - before >= 12


@pytest.mark.parametrize("k", [0, 3])
def test_contexts_around_a_top_k_that_is_no_block_boundary(k: int) -> None:
    watch = observer(tiny_model(2, index_topk=24), k)
    check_batch(watch, [Asked(n, n, 6, [1]) for n in range(20, 30)])


def test_a_model_of_sparse_layers_alone() -> None:
    layers = {"layer_types": (SPARSE,) * 3, "num_hidden_layers": 3}
    watch = observer(tiny_model(3, **layers), 5)
    check_batch(watch, [Asked(n, n, 8, [0, 4, 2, 5]) for n in (1, 4, 15, 30, 33)])


def test_the_trained_model_around_its_top_k() -> None:
    checkpoint = load_checkpoint(EMBEDDED)
    config = checkpoint.config
    assert config.index_topk == 128
    tensors = cast(checkpoint.tensors, config, torch.float32, torch.device("cpu"))
    model = Model(config, fuse(tensors, config))
    session = tiny_session(
        model, k=3, max_num_seqs=5, max_num_batched_tokens=160, max_model_len=160
    )
    session.acceptance = accept_counts([1, 3, 0, 2])
    watch = Observer(session, Reference(model, 3))
    for length in (122, 127, 128, 129, 141):
        session.scheduler.add(request(str(length), prompt(length, length), 6))
    drain(watch)
    assert watch.checked_states >= 10
