"""Top-k over pools, expanded to tokens, with the live tail behind it.

The selection is a radix select over the scores' bits, one program a row, and is exact: ties go to
the lower pool, so that a row selects the same keys in every call and on every rank. Selected pools
are then sorted, best first, so that whoever has to drop keys drops the weakest.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
WARPS = 4
NOTHING = tl.constexpr(-(2**63))


@triton.jit
def _ordered(score):
    """Scores as int32 of the same order; the two zeros are one."""
    bits = tl.where(score == 0.0, 0.0, score).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def _unsigned(order):
    return order.to(tl.uint32, bitcast=True) ^ 0x80000000


@triton.jit
def select_kernel(
    scores, positions, packed, num_pools, score_stride,
    K: tl.constexpr, KPOOL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """packed [T, K] int64 of a row's best K complete pools: score above, pool below."""
    row = tl.program_id(0).to(tl.int64)
    complete = tl.minimum((tl.load(positions + row) + 1) // KPOOL, num_pools).to(tl.int32)
    scores += row * score_stride
    packed += row * K
    lane = tl.arange(0, BLOCK)
    least = tl.full((), 0, tl.uint32)
    wanted = tl.full((), K, tl.int32)
    if complete > K:
        bins = tl.arange(0, 256)
        for step in tl.static_range(4):
            counts = tl.zeros([256], tl.int32)
            for start in range(0, complete, BLOCK):
                at = start + lane
                score = tl.load(scores + at, mask=at < complete, other=0.0)
                value = _unsigned(_ordered(score))
                alive = at < complete
                if step > 0:
                    alive = alive & ((value >> (32 - 8 * step)) == (least >> (32 - 8 * step)))
                digit = ((value >> (24 - 8 * step)) & 255).to(tl.int32)
                counts += tl.histogram(digit, 256, mask=alive)
            above = tl.sum(counts) - tl.cumsum(counts)
            hit = (above < wanted) & (above + counts >= wanted)
            chosen = tl.sum(tl.where(hit, bins, 0))
            wanted -= tl.sum(tl.where(hit, above, 0))
            least = least | (chosen.to(tl.uint32) << (24 - 8 * step))
    taken = tl.full((), 0, tl.int32)
    ties = tl.full((), 0, tl.int32)
    for start in range(0, complete, BLOCK):
        at = start + lane
        score = tl.load(scores + at, mask=at < complete, other=0.0)
        order = _ordered(score)
        value = _unsigned(order)
        equal = ((value == least) & (at < complete)).to(tl.int32)
        rank = ties + tl.cumsum(equal) - equal
        take = (at < complete) & ((value > least) | ((equal > 0) & (rank < wanted)))
        count = take.to(tl.int32)
        place = taken + tl.cumsum(count) - count
        both = (order.to(tl.int64) << 32) | (0x7FFFFFFF - at).to(tl.int64)
        tl.store(packed + place, both, mask=take)
        taken += tl.sum(count)
        ties += tl.sum(equal)
    for start in range(0, K, BLOCK):
        at = start + lane
        tl.store(packed + at, tl.full([BLOCK], NOTHING, tl.int64), mask=(at >= taken) & (at < K))


@triton.jit
def expand_kernel(
    packed, positions, row_request, tables, out, out_stride, table_stride, table_width, empty,
    K: tl.constexpr, BLOCK_K: tl.constexpr, KPOOL: tl.constexpr, BLOCK_T: tl.constexpr,
    TOPK: tl.constexpr, BLOCK_SIZE: tl.constexpr, TO_SLOTS: tl.constexpr,
):  # fmt: skip
    """out [T, TOPK + KPOOL - 1]: tokens or slots of the selected pools, best first; the tail."""
    row = tl.program_id(0).to(tl.int64)
    order = tl.arange(0, BLOCK_K)
    best = tl.load(packed + row * K + order, mask=order < K, other=NOTHING)
    best = tl.sort(best, descending=True)
    pools = (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)
    there = best != NOTHING
    offset = tl.arange(0, BLOCK_T)
    tokens = pools[:, None] * KPOOL + offset[None, :]
    there = there[:, None] & (offset < KPOOL)[None, :]
    out += row * out_stride
    at = order[:, None] * KPOOL + offset[None, :]
    if TO_SLOTS:
        tables += tl.load(row_request + row).to(tl.int64) * table_stride
        block = tl.load(tables + tokens // BLOCK_SIZE, mask=there, other=0)
        tokens = block.to(tl.int32) * BLOCK_SIZE + tokens % BLOCK_SIZE
    whole = (order < K)[:, None] & (offset < KPOOL)[None, :]
    tl.store(out + at, tl.where(there, tokens, empty).to(out.dtype.element_ty), mask=whole)

    position = tl.load(positions + row).to(tl.int32)
    tail = (position + 1) // KPOOL * KPOOL + offset
    live = (offset < KPOOL - 1) & (tail <= position)
    if TO_SLOTS:
        live = live & (tail // BLOCK_SIZE < table_width)
        block = tl.load(tables + tail // BLOCK_SIZE, mask=live, other=0)
        tail = block.to(tl.int32) * BLOCK_SIZE + tail % BLOCK_SIZE
    tail = tl.where(live, tail, empty).to(out.dtype.element_ty)
    tl.store(out + TOPK + offset, tail, mask=offset < KPOOL - 1)
    # Columns between the last pool and the tail, where top-k is no multiple of the pool.
    gap = tl.full([BLOCK_T], 0, tl.int32) + empty
    between = K * KPOOL + offset < TOPK
    tl.store(out + K * KPOOL + offset, gap.to(out.dtype.element_ty), mask=between)


def select_keys(
    scores: Tensor,
    positions: Tensor,
    *,
    topk: int,
    kpool: int,
    block_tables: Tensor | None = None,
    row_request: Tensor | None = None,
    block_size: int = 0,
    empty: int = -1,
    dtype: torch.dtype = torch.int32,
) -> Tensor:
    """The keys of every row, [T, topk + kpool - 1]: tokens, or slots with `block_tables`.

    scores [T, pools] float32; positions [T] (-1: a padded row, which selects nothing). Columns
    0 .. topk - 1 hold the tokens of the best topk // kpool pools that lie before the row, best
    first, ties to the lower pool; the last kpool - 1 columns hold the tokens of the incomplete pool
    that the row itself is in. `empty` fills the rest. With block_tables [B, n] and row_request [T]
    the positions are turned into slots. No host synchronisation. Raises ValueError where arguments
    disagree.
    """
    rows, num_pools = scores.shape
    _check(scores, positions, topk, kpool, block_tables, row_request, block_size)
    wanted = topk // kpool
    out = torch.empty(rows, topk + kpool - 1, dtype=dtype, device=scores.device)
    if rows == 0:
        return out
    packed = torch.empty(rows, wanted, dtype=torch.int64, device=scores.device)
    select_kernel[(rows,)](
        scores, positions, packed, num_pools, scores.stride(0),
        K=wanted, KPOOL=kpool, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    tables = positions if block_tables is None else block_tables
    requests = positions if row_request is None else row_request
    expand_kernel[(rows,)](
        packed, positions, requests, tables, out, out.stride(0),
        tables.stride(0), tables.shape[-1], empty,
        K=wanted, BLOCK_K=triton.next_power_of_2(wanted), KPOOL=kpool,
        BLOCK_T=triton.next_power_of_2(kpool), TOPK=topk, BLOCK_SIZE=max(block_size, 1),
        TO_SLOTS=block_tables is not None, num_warps=WARPS,
    )  # fmt: skip
    return out


def _check(
    scores: Tensor,
    positions: Tensor,
    topk: int,
    kpool: int,
    block_tables: Tensor | None,
    row_request: Tensor | None,
    block_size: int,
) -> None:
    if scores.dtype != torch.float32 or scores.stride(1) != 1:
        raise ValueError(f"scores must be float32 with contiguous rows, found {scores.dtype}")
    if positions.shape != scores.shape[:1]:
        raise ValueError(f"{len(scores)} rows of scores and positions {tuple(positions.shape)}")
    if kpool < 2 or topk < kpool:
        raise ValueError(f"top-k {topk} over pools of {kpool}")
    if block_tables is None:
        return
    if row_request is None or row_request.shape != positions.shape:
        raise ValueError("block_tables need row_request [T]")
    if block_size < kpool or block_size % kpool:
        raise ValueError(f"block_size {block_size} is no multiple of the pool of {kpool}")
