"""mHC mixing, expert routing and the indexer's choice, each against a plain form of it."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from row_driver import RowDriver
from small_models import random_tensors, raw_config
from torch import Tensor

from evalsuite.mini.caches import ZERO_SLOT
from evalsuite.mini.config import MiniConfig, parse_config
from evalsuite.mini.model import indexer, mhc, moe
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.sparse_ops import gather_attention
from evalsuite.mini.weights import SparseWeights, fuse

BLOCK_SIZE = 16


def make_model(**changes: object) -> Model:
    """A small model in memory: one sparse layer whose selection can be looked at."""
    raw = raw_config("hybrid", **changes)
    raw |= {"num_hidden_layers": 2, "layer_types": raw["layer_types"][:2]}
    raw |= {"mlp_layer_types": ["dense", "sparse"], "indexer_types": ["full", "full"]}
    config = parse_config(raw, "test")
    return Model(config, fuse(random_tensors(config, 3), config))


# mHC


def plain_sinkhorn(matrix: list[list[float]], iterations: int, eps: float) -> list[list[float]]:
    """Columns first, then rows and columns by turns."""
    size = len(matrix)

    def columns(m: list[list[float]]) -> list[list[float]]:
        sums = [sum(m[i][j] for i in range(size)) + eps for j in range(size)]
        return [[m[i][j] / sums[j] for j in range(size)] for i in range(size)]

    def rows(m: list[list[float]]) -> list[list[float]]:
        return [[value / (sum(row) + eps) for value in row] for row in m]

    matrix = columns(matrix)
    for _ in range(iterations - 1):
        matrix = columns(rows(matrix))
    return matrix


@settings(max_examples=40, deadline=None)
@given(
    size=st.integers(1, 5),
    iterations=st.integers(1, 20),
    seed=st.integers(0, 2**20),
    spread=st.floats(0.1, 6.0),
)
def test_sinkhorn(size: int, iterations: int, seed: int, spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.randn(size, size, generator=generator) * spread).softmax(-1) + 1e-6
    found = mhc.sinkhorn(matrix, iterations, 1e-6)
    expected = torch.tensor(plain_sinkhorn(matrix.tolist(), iterations, 1e-6))
    assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(found.sum(0), torch.ones(size), atol=1e-4)


def test_twenty_passes_are_nearly_doubly_stochastic() -> None:
    matrix = torch.randn(50, 4, 4, generator=torch.Generator().manual_seed(1)).softmax(-1)
    mixed = mhc.sinkhorn(matrix, 20, 1e-6)
    assert torch.allclose(mixed.sum(-1), torch.ones(50, 4), atol=1e-3)
    assert torch.allclose(mixed.sum(-2), torch.ones(50, 4), atol=1e-3)


def test_collapse_and_expand_stream_by_stream() -> None:
    model = make_model()
    config, site = model.config, model.weights.layers[0].sites
    assert site is not None
    mult, streams = config.hc_mult, torch.randn(5, config.hc_mult, config.hidden_size)
    output = torch.randn(5, config.hidden_size)
    collapsed, mixing = mhc.collapse(streams, site[0], config)
    expanded = mhc.expand(output, streams, mixing)
    fn, base, scale = site[0]
    for row in range(5):
        flat = streams[row].flatten().double()
        flat = flat / math.sqrt(float((flat * flat).mean()) + config.rms_norm_eps)
        mix = fn.double() @ flat
        pre, post = mix[:mult] * scale[0] + base[:mult], mix[mult : 2 * mult] * scale[1]
        post = 2 * torch.sigmoid(post + base[mult : 2 * mult])
        comb = (mix[2 * mult :] * scale[2] + base[2 * mult :]).view(mult, mult).softmax(-1)
        passes = config.hc_sinkhorn_iters
        comb = torch.tensor(plain_sinkhorn((comb + config.hc_eps).tolist(), passes, config.hc_eps))
        into = sum((torch.sigmoid(pre[s]) + config.hc_eps) * streams[row, s] for s in range(mult))
        assert torch.allclose(collapsed[row].double(), into.double(), atol=1e-5)
        for to in range(mult):
            mixed = sum(comb[s, to] * streams[row, s] for s in range(mult))
            expected = post[to] * output[row] + mixed
            assert torch.allclose(expanded[row, to].double(), expected.double(), atol=1e-5)


# Experts


@settings(max_examples=30, deadline=None)
@given(
    experts=st.integers(1, 9),
    rows=st.integers(1, 6),
    seed=st.integers(0, 2**20),
    normed=st.booleans(),
    data=st.data(),
)
def test_experts_row_by_row(
    experts: int, rows: int, seed: int, normed: bool, data: st.DataObject
) -> None:
    chosen = data.draw(st.integers(1, experts), label="experts per token")
    config = make_model(
        n_routed_experts=experts,
        num_experts_per_tok=chosen,
        norm_topk_prob=normed,
        swiglu_limit=0.5,
    ).config
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    shared = moe.SwigluWeights(normal(6, 4), normal(4, 3))
    weights = moe.MoeWeights(
        normal(experts, 4),
        2 * normal(experts),
        normal(experts, 6, 4),
        normal(experts, 4, 3),
        shared,
    )
    x = normal(rows, 4)
    found = moe.moe(x, weights, config)
    for row in range(rows):
        expected = plain_experts(x[row], weights, config)
        assert torch.allclose(found[row].double(), expected, atol=1e-4)


def plain_swiglu(x: Tensor, gate_up: Tensor, down: Tensor, limit: float) -> Tensor:
    """One row through one expert, float64."""
    gate, up = (gate_up.double() @ x.double()).chunk(2)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return down.double() @ (gate * torch.sigmoid(gate) * up)


def plain_experts(x: Tensor, weights: moe.MoeWeights, config: MiniConfig) -> Tensor:
    """One row x [H]: the chosen experts and the shared one, float64."""
    scores = torch.sigmoid(weights.router.double() @ x.double()).tolist()
    ranked = sorted(range(len(scores)), key=lambda e: -(scores[e] + float(weights.bias[e])))
    chosen = ranked[: config.num_experts_per_tok]
    total = sum(scores[e] for e in chosen) if config.norm_topk_prob else 1.0
    assert weights.shared is not None
    out = plain_swiglu(x, *weights.shared, config.swiglu_limit)
    for e in chosen:
        share = scores[e] / total * config.routed_scaling_factor
        each = plain_swiglu(x, weights.gate_up[e], weights.down[e], config.swiglu_limit)
        out = out + share * each
    return out


def test_the_bias_chooses_and_does_not_weigh() -> None:
    config = make_model(n_routed_experts=3, num_experts_per_tok=1).config
    router, bias = torch.eye(3), torch.tensor([0.0, 5.0, 0.0])
    weights = moe.MoeWeights(router, bias, torch.zeros(3, 6, 3), torch.zeros(3, 3, 3), None)
    share = moe.route(torch.tensor([[4.0, -4.0, 0.0]]), weights, config)
    assert share.tolist() == [[0.0, config.routed_scaling_factor, 0.0]]


# Indexer


def plain_selection(
    entries: Tensor, query: Tensor, shares: Tensor, ape: Tensor, config: MiniConfig
) -> list[set[int]]:
    """Positions that every row of one request attends to.

    entries [L, 2D] index keys and gates, query [L, heads, D], shares [L, heads].
    """
    keys, gates = entries.double().chunk(2, -1)
    kpool, selected = config.index_kpool, []
    for position in range(len(entries)):
        scores = []
        for pool in range((position + 1) // kpool):
            span = slice(pool * kpool, (pool + 1) * kpool)
            key = ((gates[span] + ape).softmax(0) * keys[span]).sum(0)
            each = F.relu(query[position].double() @ key * config.index_head_dim**-0.5)
            scores.append(float((shares[position].double() * each).sum()))
        best = sorted(range(len(scores)), key=lambda p: -scores[p])
        best = best[: config.index_topk // kpool]
        tail = range(len(scores) * kpool, position + 1)
        selected.append({pool * kpool + i for pool in best for i in range(kpool)} | {*tail})
    return selected


@settings(max_examples=15, deadline=None)
@given(
    kpool=st.sampled_from([1, 2, 4, 8]),
    pools=st.integers(1, 6),
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=3),
    seed=st.integers(0, 2**20),
    data=st.data(),
)
def test_selection_of_ragged_steps(
    kpool: int, pools: int, lengths: list[int], seed: int, data: st.DataObject
) -> None:
    """Random index inputs through any mixture of chunks and decode rows choose the same keys."""
    model = make_model(index_kpool=kpool, index_topk=kpool * pools)
    config, weights = model.config, model.weights.layers[1].attention
    assert isinstance(weights, SparseWeights)
    generator = torch.Generator().manual_seed(seed)
    heads, dim = config.index_n_heads, config.index_head_dim
    inputs = [
        [
            torch.randn(n, *shape, generator=generator)
            for shape in ((2 * dim,), (heads, dim), (heads,))
        ]
        for n in lengths
    ]
    for entries, query, _ in inputs:
        # One head always sees something, so that no two pools tie at exactly zero.
        entries[:, 0] += 12.0
        query[:, 0, 0] = 3.0
    driver = RowDriver(model, [[2] * n for n in lengths])
    cache = driver.caches.layers[1]
    found: list[list[set[int]]] = [[] for _ in lengths]
    while any(s.computed < n for s, n in zip(driver.sequences, lengths, strict=True)):
        decode, prefill = draw_step(data, driver, lengths)
        starts = {i: driver.sequences[i].computed for i in (*decode, *prefill)}
        meta, counts = driver.advance(prefill, decode).meta, {**decode, **prefill}
        rows = [
            torch.cat([inputs[i][part][starts[i] : starts[i] + n] for i, n in counts.items()])
            for part in range(3)
        ]
        indexer.update_pools(rows[0], cache, weights, meta, config)
        slots = indexer.select_keys(rows[1], rows[2], cache, meta, BLOCK_SIZE, config)
        assert slots.shape == (len(rows[0]), config.index_width)
        for i, part in zip(counts, slots.split(list(counts.values())), strict=True):
            found[i] += [positions(row, driver.sequences[i].blocks) for row in part.tolist()]
    for i, (entries, query, shares) in enumerate(inputs):
        scale = heads**-0.5
        assert found[i] == plain_selection(entries, query, shares * scale, weights.ape, config)


def draw_step(
    data: st.DataObject, driver: RowDriver, lengths: list[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """One decode row or a prefill chunk of any length for some of the unfinished requests."""
    decode: dict[int, int] = {}
    prefill: dict[int, int] = {}
    for i, (sequence, length) in enumerate(zip(driver.sequences, lengths, strict=True)):
        left = length - sequence.computed
        if left == 0:
            continue
        if data.draw(st.booleans(), label=f"request {i} decodes"):
            decode[i] = 1
        else:
            prefill[i] = data.draw(st.integers(1, left), label=f"chunk of request {i}")
    return decode, prefill


def positions(slots: list[int], blocks: list[int]) -> set[int]:
    """Positions in a request that its slots stand for; every key at most once."""
    taken = [slot for slot in slots if slot != ZERO_SLOT]
    assert len(set(taken)) == len(taken)
    return {blocks.index(s // BLOCK_SIZE) * BLOCK_SIZE + s % BLOCK_SIZE for s in taken}


def test_a_full_pool_of_the_row_itself_must_win_its_place() -> None:
    # Where position + 1 is a multiple of the pool there is no tail: a row may not see itself.
    model = make_model(index_topk=4)
    config = model.config
    entries = torch.zeros(12, 2 * config.index_head_dim)
    entries[:4, : config.index_head_dim] = 1.0
    query = torch.ones(12, config.index_n_heads, config.index_head_dim)
    shares = torch.ones(12, config.index_n_heads)
    driver = RowDriver(model, [[2] * 12])
    meta = driver.advance({0: 12}).meta
    weights, cache = model.weights.layers[1].attention, driver.caches.layers[1]
    assert isinstance(weights, SparseWeights)
    indexer.update_pools(entries, cache, weights, meta, config)
    slots = indexer.select_keys(query, shares, cache, meta, BLOCK_SIZE, config)
    seen = [positions(row, driver.sequences[0].blocks) for row in slots.tolist()]
    assert seen[11] == {0, 1, 2, 3}
    assert seen[10] == {0, 1, 2, 3, 8, 9, 10}


@pytest.mark.parametrize("count", [1, 5])
def test_rows_without_keys_attend_to_nothing(count: int) -> None:
    latent = torch.randn(8, 6)
    latent[ZERO_SLOT] = 0.0
    slots = torch.full((count, 3), ZERO_SLOT)
    out = gather_attention(torch.randn(count, 2, 6), latent, slots, 1.0)
    assert torch.equal(out, torch.zeros(count, 2, 6))


def test_attention_over_selected_rows_only() -> None:
    generator = torch.Generator().manual_seed(2)
    latent = torch.randn(90, 6, generator=generator)
    latent[ZERO_SLOT] = 0.0
    query = torch.randn(70, 2, 6, generator=generator)
    slots = torch.stack([torch.randperm(89, generator=generator)[:5] + 1 for _ in range(70)])
    slots[:, 3] = torch.where(torch.arange(70) % 2 == 0, ZERO_SLOT, slots[:, 3])
    found = gather_attention(query, latent, slots, 0.3)
    for row in range(70):
        keys = latent[[s for s in slots[row].tolist() if s != ZERO_SLOT]].double()
        share = (query[row].double() @ keys.T * 0.3).softmax(-1)
        assert torch.allclose(found[row].double(), share @ keys, atol=1e-5)
