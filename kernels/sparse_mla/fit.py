"""Squeeze a row of selected keys into fewer columns: the weakest history goes, the tail stays.

Kernels that take a fixed 2,048 columns get 2,051 from a k-pool indexer: 2,048 of history, best
first, and up to 3 of the live tail. What vLLM's `fit_kpool_indices_to_aiter` does.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WARPS = 4


@triton.jit
def fit_kernel(
    indices, out, in_stride, out_stride, empty,
    HISTORY: tl.constexpr, TAIL: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: as many keys of its history as fit beside its tail, then the tail."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    row_at = indices + row * in_stride
    index = tl.load(row_at + column, mask=column < HISTORY + TAIL, other=empty)
    there = (index != empty) & (column < HISTORY + TAIL)
    is_tail = there & (column >= HISTORY)
    is_history = there & (column < HISTORY)
    tails = tl.sum(is_tail.to(tl.int32))
    rank = tl.cumsum(is_history.to(tl.int32)) - is_history.to(tl.int32)
    is_kept = is_history & (rank < WIDTH - tails)
    kept = tl.sum(is_kept.to(tl.int32))
    tail_rank = tl.cumsum(is_tail.to(tl.int32)) - is_tail.to(tl.int32)
    place = tl.where(is_kept, rank, kept + tail_rank)
    out += row * out_stride
    tl.store(out + place, index, mask=is_kept | is_tail)
    rest = tl.full([BLOCK], 0, index.dtype) + empty
    tl.store(out + column, rest, mask=(column >= kept + tails) & (column < WIDTH))


def fit_keys(indices: Tensor, width: int, tail: int, *, empty: int = -1) -> Tensor:
    """Keys [T, width] of indices [T, history + tail] without holes, `empty` behind them.

    The last `tail` columns are the live tail and are all kept, behind as many of the history's
    keys as fit, which come best first. Returns `indices` itself where it is `width` wide. Raises
    ValueError where the tail alone does not fit.
    """
    rows, columns = indices.shape
    if columns == width:
        return indices
    if not 0 <= tail <= min(width, columns):
        raise ValueError(f"a tail of {tail} in {columns} columns for {width}")
    if width > columns:
        raise ValueError(f"{columns} columns cannot be squeezed into {width}")
    out = torch.empty(rows, width, dtype=indices.dtype, device=indices.device)
    if rows:
        indices = indices.contiguous()
        fit_kernel[(rows,)](
            indices, out, indices.stride(0), out.stride(0), empty,
            HISTORY=columns - tail, TAIL=tail, WIDTH=width,
            BLOCK=triton.next_power_of_2(columns), num_warps=WARPS,
        )  # fmt: skip
    return out
