"""The miniature's indexer on the kernels, against the one that is written in PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parents[1] / "mini"))

from tiny import TINY, tiny_model

from evalsuite.mini.caches import TRASH_SLOT, SparseCache
from evalsuite.mini.metadata import DecodeInputs, StepMetadata, decode_metadata
from evalsuite.mini.model import indexer as plain
from evalsuite.mini.model import kernels
from evalsuite.mini.weights import SparseWeights

BLOCK_SIZE, BLOCKS, RING, WIDTH = 16, 6, 8, 3
KPOOL = TINY.index_kpool


class Case(NamedTuple):
    """A decode step of three requests, one of them padded, and its caches."""

    meta: StepMetadata
    cache: SparseCache
    entries: Tensor
    query: Tensor
    head_weights: Tensor


def case(contexts: list[int], widths: list[int], seed: int) -> Case:
    """Requests with so many tokens before the step and so many rows in it (0: padding)."""
    dice = torch.Generator().manual_seed(seed)
    count, dim, heads = len(contexts), TINY.index_head_dim, TINY.index_n_heads
    tables = 1 + torch.randperm(count * BLOCKS, generator=dice).view(count, BLOCKS)
    tables[[i for i, width in enumerate(widths) if width == 0]] = 0
    context = torch.tensor(contexts)
    zeros = torch.zeros_like(context)
    inputs = DecodeInputs(
        tokens=torch.ones(count, WIDTH, dtype=torch.int64),
        width=torch.tensor(widths),
        context_lens=context,
        state_slots=torch.tensor([i + 1 if width else 0 for i, width in enumerate(widths)]),
        accepted=zeros,
        force_low=zeros,
        force_high=zeros,
        block_tables=tables,
    )
    slots = (count * BLOCKS + 1) * BLOCK_SIZE
    cache = SparseCache(
        torch.zeros(slots, TINY.kv_lora_rank),
        torch.randn(slots // KPOOL, dim, generator=dice),
        torch.randn(count + 1, RING, 2 * dim, generator=dice),
    )
    rows = count * WIDTH
    return Case(
        decode_metadata(inputs, BLOCK_SIZE, KPOOL),
        cache,
        torch.randn(rows, 2 * dim, generator=dice),
        torch.randn(rows, heads, dim, generator=dice),
        torch.randn(rows, heads, generator=dice),
    )


CASES = [([61, 7, 0], [3, 2, 0], 0), ([3, 90, 15], [3, 3, 1], 1), ([30, 0, 31], [1, 3, 3], 2)]


@pytest.mark.parametrize(("contexts", "widths", "seed"), CASES)
def test_the_same_keys_are_selected(contexts: list[int], widths: list[int], seed: int) -> None:
    meta, cache, _, query, head_weights = case(contexts, widths, seed)
    expected = plain.select_keys(query, head_weights, cache, meta, BLOCK_SIZE, TINY)
    found = kernels.select_keys(query, head_weights, cache, meta, BLOCK_SIZE, TINY)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("contexts", "widths", "seed"), CASES)
def test_the_same_pools_and_rings_are_written(
    contexts: list[int], widths: list[int], seed: int
) -> None:
    meta, cache, entries, *_ = case(contexts, widths, seed)
    weights = next(
        layer.attention
        for layer in tiny_model(1).weights.layers
        if isinstance(layer.attention, SparseWeights)
    )
    expected = SparseCache(cache.latent, cache.pool.clone(), cache.ring.clone())
    plain.update_pools(entries, expected, weights, meta, TINY)
    kernels.update_pools(entries, cache, weights, meta, TINY)
    real = torch.arange(len(cache.pool)) != TRASH_SLOT
    torch.testing.assert_close(cache.pool[real], expected.pool[real], atol=1e-6, rtol=1e-6)
    assert torch.equal(cache.ring[1:], expected.ring[1:])
