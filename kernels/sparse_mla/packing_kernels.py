"""The Triton kernel that builds the union of a group's index lists by hashing.

Two tables without chains: a cell belongs to the lowest key that hashes to it, what loses in the
first table tries the second, and what loses there too is listed once for each row that names it,
which is as right and only a little longer. So there is no search, and the union depends on the
lists alone, not on which thread came first.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_mla.packing import FREE, Packing

EMPTY = tl.constexpr(FREE)
# Odd multipliers of Knuth's multiplicative hashing (The Art of Computer Programming 3, 6.4).
FIRST_HASH = tl.constexpr(-1640531535)
SECOND_HASH = tl.constexpr(-1028477387)
LARGEST_BLOCK = 4096
INTERPRETED_BLOCK = 64


@triton.jit
def _keys(indices, lengths, base, flat, topk, slots, empty,
          ROWS: tl.constexpr, HAS_LENGTHS: tl.constexpr):  # fmt: skip
    """Slots at places `flat` of a group's lists laid end to end, and which of them are keys."""
    row = flat // topk
    inside = row < ROWS
    if HAS_LENGTHS:
        end = tl.load(lengths + base // topk + row, mask=inside, other=0)
        inside = inside & (flat % topk < end)
    key = tl.load(indices + base + flat, mask=inside, other=-1).to(tl.int64)
    there = (key >= 0) & (key < slots) & (key != empty)
    return tl.where(there, key, 0).to(tl.int32), there


@triton.jit
def _cell(key, MULTIPLIER: tl.constexpr, CELLS: tl.constexpr):
    return ((key * MULTIPLIER) >> 13) & (CELLS - 1)


@triton.jit
def _won(table, key, there, CELLS: tl.constexpr):
    """The cell that `key` owns, in either table, -1 for none."""
    first = _cell(key, FIRST_HASH, CELLS)
    second = CELLS + _cell(key, SECOND_HASH, CELLS)
    # Volatile: other threads' atomics are not in this one's L1 cache.
    own_first = tl.load(table + first, mask=there, other=EMPTY, volatile=True) == key
    own_second = tl.load(table + second, mask=there, other=EMPTY, volatile=True) == key
    cell = tl.where(own_first, first, tl.where(own_second, second, -1))
    return tl.where(there, cell, -1)


@triton.jit(do_not_specialize=["slots", "empty"])
def build_union(
    indices, lengths, tables, union, members, counts, topk, slots, empty,
    ROWS: tl.constexpr, CELLS: tl.constexpr, BLOCK: tl.constexpr, HAS_LENGTHS: tl.constexpr,
):  # fmt: skip
    """The union of group program_id(0) of indices [T, topk], its members and its length.

    tables int32 [groups, 1 + ROWS, 2 * CELLS], of any content: the key of each cell, then for
    each row the lowest column that names it.
    """
    group = tl.program_id(0).to(tl.int64)
    size: tl.constexpr = (1 + ROWS) * 2 * CELLS
    table = tables + group * size
    base = group * ROWS * topk
    lane = tl.arange(0, BLOCK)
    for start in range(0, size, BLOCK):
        tl.store(table + start + lane, EMPTY, mask=start + lane < size)
    tl.debug_barrier()
    for start in range(0, ROWS * topk, BLOCK):
        key, there = _keys(
            indices, lengths, base, start + lane, topk, slots, empty, ROWS, HAS_LENGTHS
        )
        tl.atomic_min(table + _cell(key, FIRST_HASH, CELLS), key, mask=there)
    tl.debug_barrier()
    for start in range(0, ROWS * topk, BLOCK):
        key, there = _keys(
            indices, lengths, base, start + lane, topk, slots, empty, ROWS, HAS_LENGTHS
        )
        first = tl.load(table + _cell(key, FIRST_HASH, CELLS), mask=there, other=0, volatile=True)
        lost = there & (first != key)
        tl.atomic_min(table + CELLS + _cell(key, SECOND_HASH, CELLS), key, mask=lost)
    tl.debug_barrier()
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + lane
        key, there = _keys(indices, lengths, base, flat, topk, slots, empty, ROWS, HAS_LENGTHS)
        cell = _won(table, key, there, CELLS)
        owner = table + (1 + flat // topk) * 2 * CELLS + cell
        tl.atomic_min(owner, flat % topk, mask=cell >= 0)
    tl.debug_barrier()
    written = tl.zeros([], tl.int32)
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + lane
        key, there = _keys(indices, lengths, base, flat, topk, slots, empty, ROWS, HAS_LENGTHS)
        cell = _won(table, key, there, CELLS)
        row = flat // topk
        bits = tl.zeros([BLOCK], tl.int32)
        first = tl.full([BLOCK], ROWS, tl.int32)
        own = tl.full([BLOCK], -1, tl.int32)
        for back in tl.static_range(ROWS):
            # From the last row to the first, without a name: Triton refuses to define one twice.
            at = table + (ROWS - back) * 2 * CELLS + cell
            lowest = tl.load(at, mask=cell >= 0, other=EMPTY, volatile=True)
            has = lowest != EMPTY
            bits = tl.where(has, bits | (1 << (ROWS - 1 - back)), bits)
            first = tl.where(has, ROWS - 1 - back, first)
            own = tl.where(row == ROWS - 1 - back, lowest, own)
        # Stands for itself and its row alone: a slot named again, and a key that owns no cell.
        alone = own != flat % topk
        emit = there & (alone | (first == row))
        at = written + tl.cumsum(emit.to(tl.int32), 0) - 1
        tl.store(union + base + at, key, mask=emit)
        tl.store(members + base + at, tl.where(alone, 1 << row, bits), mask=emit)
        written += tl.sum(emit.to(tl.int32), 0)
    tl.store(counts + group, written)


def launch_packing(
    packing: Packing, indices: Tensor, lengths: Tensor | None, slots: int, empty_index: int
) -> None:
    """Fill `packing` from indices [T, topk]."""
    rows, topk = packing.rows, packing.topk
    groups = len(packing.counts)
    cells = max(64, triton.next_power_of_2(rows * topk // 2 + 1))
    tables = torch.empty((groups, 1 + rows, 2 * cells), dtype=torch.int32, device=indices.device)
    block = min(LARGEST_BLOCK, triton.next_power_of_2(rows * topk))
    if indices.device.type == "cpu":
        block = min(block, INTERPRETED_BLOCK)
    build_union[(groups,)](
        indices, indices if lengths is None else lengths, tables,
        packing.indices, packing.members, packing.counts, topk, slots, empty_index,
        ROWS=rows, CELLS=cells, BLOCK=block, HAS_LENGTHS=lengths is not None,
        num_warps=min(16, max(1, block // 256)),
    )  # fmt: skip
