"""The indexer's scores: every row against the pooled keys of its request.

A program takes a tile of a request's pools and several of its rows, so that verification rows and
the rows of a prefill chunk share the keys that it loads. A row's scores depend on nothing but the
row: they are the same alone, in a batch, and inside a verification block.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_mla.architecture import interpreting

BLOCK_POOLS = 64
ROWS_PER_PROGRAM = 8
WARPS = 4


@triton.jit
def pool_scores_kernel(
    query, weights, pool, tables, positions, query_start_loc, scores,
    scale, num_pools, table_stride, score_stride,
    HEADS: tl.constexpr, BLOCK_H: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    KPOOL: tl.constexpr, POOLS_PER_BLOCK: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_P: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """scores [T, num_pools] of the rows of one request over one tile of its pools."""
    request = tl.program_id(0)
    pools = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)
    first = tl.load(query_start_loc + request) + tl.program_id(2) * ROWS
    end = tl.minimum(tl.load(query_start_loc + request + 1), first + ROWS)
    inside = pools < num_pools
    block = tl.load(tables + request * table_stride + pools // POOLS_PER_BLOCK, inside, 0)
    slot = block.to(tl.int64) * POOLS_PER_BLOCK + pools % POOLS_PER_BLOCK
    dim = tl.arange(0, BLOCK_D)
    head = tl.arange(0, BLOCK_H)
    is_dim = dim < DIM
    is_head = head < HEADS
    keys_at = pool + slot[:, None] * DIM + dim[None, :]
    ahead = first + tl.arange(0, ROWS)
    last = tl.max(tl.load(positions + ahead, mask=ahead < end, other=-1))
    seen = inside & (pools < (last + 1) // KPOOL)
    keys = tl.load(keys_at, mask=seen[:, None] & is_dim[None, :], other=0.0)
    if UPCAST:
        keys = keys.to(tl.float32)
    for step in range(0, end - first):
        row = first.to(tl.int64) + step
        at = row * HEADS + head
        q = tl.load(
            query + at[:, None] * DIM + dim[None, :],
            mask=is_head[:, None] & is_dim[None, :],
            other=0.0,
        )
        if UPCAST:
            q = q.to(tl.float32)
        share = tl.load(weights + at, mask=is_head, other=0.0)
        alike = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        total = tl.sum(tl.maximum(alike, 0.0) * share[:, None], 0)
        complete = (tl.load(positions + row) + 1) // KPOOL
        total = tl.where(pools < complete, total, float("-inf"))
        tl.store(scores + row * score_stride + pools, total, mask=inside)


def pool_scores(
    query: Tensor,
    weights: Tensor,
    pool: Tensor,
    block_tables: Tensor,
    positions: Tensor,
    query_start_loc: Tensor,
    *,
    scale: float,
    kpool: int,
    pools_per_block: int,
    max_query_len: int,
) -> Tensor:
    """Scores float32 [T, n * pools_per_block] of every row against its request's pools.

    A score is the sum over heads of weights [T, heads] (float32) times relu(query . key) * scale,
    with query [T, heads, D] and pool keys [slots, D] of one type. Request b has the rows
    query_start_loc[b] .. query_start_loc[b + 1] - 1, at most `max_query_len`, at
    `positions` [T], and its pools lie in the blocks block_tables[b] [B, n]. A pool whose last token
    a row does not see scores -inf. Padded rows carry position -1. No host synchronisation. Raises
    ValueError where shapes or types disagree.
    """
    rows, heads, dim = query.shape
    _check(query, weights, pool, block_tables, positions, query_start_loc)
    requests, blocks = block_tables.shape
    num_pools = blocks * pools_per_block
    scores = torch.empty(rows, num_pools, dtype=torch.float32, device=query.device)
    if rows == 0 or requests == 0:
        return scores
    per_program = min(ROWS_PER_PROGRAM, triton.next_power_of_2(max_query_len))
    grid = (requests, triton.cdiv(num_pools, BLOCK_POOLS), triton.cdiv(max_query_len, per_program))
    pool_scores_kernel[grid](
        query.contiguous(), weights.contiguous(), pool, block_tables, positions, query_start_loc,
        scores, scale, num_pools, block_tables.stride(0), scores.stride(0),
        HEADS=heads, BLOCK_H=max(16, triton.next_power_of_2(heads)),
        DIM=dim, BLOCK_D=max(16, triton.next_power_of_2(dim)),
        KPOOL=kpool, POOLS_PER_BLOCK=pools_per_block, ROWS=per_program, BLOCK_P=BLOCK_POOLS,
        UPCAST=interpreting(), num_warps=WARPS,
    )  # fmt: skip
    return scores


def _check(
    query: Tensor,
    weights: Tensor,
    pool: Tensor,
    block_tables: Tensor,
    positions: Tensor,
    query_start_loc: Tensor,
) -> None:
    rows, heads, dim = query.shape
    wanted = {
        "weights": (weights.shape, (rows, heads)),
        "positions": (positions.shape, (rows,)),
        "query_start_loc": (query_start_loc.shape, (len(block_tables) + 1,)),
        "pool": (pool.shape[1:], (dim,)),
    }
    for name, (found, expected) in wanted.items():
        if tuple(found) != expected:
            raise ValueError(f"{name} is {tuple(found)}, expected {expected}")
    if weights.dtype != torch.float32:
        raise ValueError(f"weights are {weights.dtype}, expected float32")
    if pool.dtype != query.dtype:
        raise ValueError(f"query is {query.dtype} and the pool {pool.dtype}")
    if not pool.is_contiguous() or block_tables.stride(-1) != 1:
        raise ValueError("pool and the rows of block_tables must be contiguous")
