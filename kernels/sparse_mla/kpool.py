"""Pools of k tokens: their keys, and the ring of raw entries from which they are made.

A pool's key is a gated mean of its tokens' keys. Tokens come one step at a time and drafts are
taken back, so the raw entries of recent tokens wait in a ring, addressed by position, until the
last token of their pool comes. All pools are computed before any entry is stored: a long prefill
chunk overwrites the entries that its own first pool needs.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

WARPS = 1


@triton.jit
def compress_kernel(
    entries, ring, pool, ape, positions, row_request, query_start_loc, state_slots, pool_mapping,
    ring_stride, ring_size, first_slot,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, KPOOL: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    """The pool key of a row that completes a pool; others have a slot below first_slot."""
    row = tl.program_id(0)
    target = tl.load(pool_mapping + row).to(tl.int64)
    if target < first_slot:
        return
    request = tl.load(row_request + row)
    before = row - tl.load(query_start_loc + request)
    owner = tl.load(state_slots + request).to(tl.int64)
    position = tl.load(positions + row)
    token = tl.arange(0, BLOCK_T)
    dim = tl.arange(0, BLOCK_D)
    back = KPOOL - 1 - token
    mask = (token < KPOOL)[:, None] & (dim < DIM)[None, :]
    # Tokens of this step come from its entries, earlier ones from the ring.
    now = (back <= before)[:, None]
    fresh = entries + (row - back).to(tl.int64)[:, None] * (2 * DIM) + dim[None, :]
    at = (position - back + ring_size) % ring_size
    stored = ring + owner * ring_stride + at[:, None] * (2 * DIM) + dim[None, :]
    key = tl.where(now, tl.load(fresh, mask & now, 0.0), tl.load(stored, mask & (now == 0), 0.0))
    gate = tl.where(
        now, tl.load(fresh + DIM, mask & now, 0.0), tl.load(stored + DIM, mask & (now == 0), 0.0)
    )
    bias = tl.load(ape + token[:, None] * DIM + dim[None, :], mask, 0.0).to(tl.float32)
    logit = tl.where((token < KPOOL)[:, None], gate.to(tl.float32) + bias, float("-inf"))
    share = tl.exp(logit - tl.max(logit, 0)[None, :])
    share = (share / tl.sum(share, 0)[None, :]).to(key.dtype)
    # Rounded where a model in this type rounds: the shares, and each product.
    part = (share.to(tl.float32) * key.to(tl.float32)).to(key.dtype).to(tl.float32)
    mean = tl.sum(tl.where(mask, part, 0.0), 0)
    tl.store(pool + target * DIM + dim, mean.to(pool.dtype.element_ty), mask=dim < DIM)


@triton.jit
def store_kernel(
    entries, ring, positions, row_request, row_valid, query_start_loc, state_slots,
    ring_stride, ring_size, WIDTH: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Store a row's entry in its request's ring, if no later row of the step takes its place."""
    row = tl.program_id(0)
    request = tl.load(row_request + row)
    end = tl.load(query_start_loc + request + 1)
    if (tl.load(row_valid + row) != 0) & (end - row <= ring_size):
        owner = tl.load(state_slots + request).to(tl.int64)
        at = tl.load(positions + row) % ring_size
        column = tl.arange(0, BLOCK_W)
        entry = tl.load(entries + row.to(tl.int64) * WIDTH + column, mask=column < WIDTH)
        tl.store(ring + owner * ring_stride + at * WIDTH + column, entry, mask=column < WIDTH)


def update_pools(
    entries: Tensor,
    ring: Tensor,
    pool: Tensor,
    ape: Tensor,
    positions: Tensor,
    row_request: Tensor,
    row_valid: Tensor,
    query_start_loc: Tensor,
    state_slots: Tensor,
    pool_mapping: Tensor,
    *,
    first_slot: int = 0,
) -> None:
    """Write the pools that a step's rows complete, then store the rows in the rings.

    entries [T, 2D] (key, gate) of flat rows; ring [requests, R, 2D]; pool [slots, D]; ape
    [kpool, D]; positions, row_request, row_valid (bool), pool_mapping [T]; query_start_loc [B + 1];
    state_slots [B]. A row completes the pool at slot pool_mapping[row], none where that lies below
    `first_slot`.
    Rows of a request have consecutive positions; padded ones, behind the others, are not valid.
    A ring holds at least kpool - 1 entries more than a step has decode rows of one request.
    No host synchronisation. Raises ValueError where shapes or types disagree.
    """
    rows, width = entries.shape
    kpool, dim = ape.shape
    if width != 2 * dim or ring.shape[2] != width or pool.shape[1] != dim:
        raise ValueError(
            f"entries {tuple(entries.shape)}, ring {tuple(ring.shape)}, pool {tuple(pool.shape)} "
            f"and ape {tuple(ape.shape)} disagree"
        )
    if ring.shape[1] < kpool or not ring.is_contiguous() or not pool.is_contiguous():
        raise ValueError(f"the ring of {ring.shape[1]} must be contiguous and hold a pool")
    if entries.dtype != ring.dtype or pool.dtype != ring.dtype:
        raise ValueError(f"entries {entries.dtype}, ring {ring.dtype} and pool {pool.dtype}")
    if rows == 0:
        return
    entries = entries.contiguous()
    compress_kernel[(rows,)](
        entries, ring, pool, ape.contiguous(), positions, row_request, query_start_loc,
        state_slots, pool_mapping, ring.stride(0), ring.shape[1], first_slot,
        DIM=dim, BLOCK_D=triton.next_power_of_2(dim), KPOOL=kpool,
        BLOCK_T=triton.next_power_of_2(kpool), num_warps=WARPS,
    )  # fmt: skip
    store_kernel[(rows,)](
        entries, ring, positions, row_request, row_valid, query_start_loc, state_slots,
        ring.stride(0), ring.shape[1],
        WIDTH=width, BLOCK_W=triton.next_power_of_2(width), num_warps=WARPS,
    )  # fmt: skip
