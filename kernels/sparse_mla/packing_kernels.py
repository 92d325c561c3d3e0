"""Triton kernels that build the union of a group's index lists by hashing.

Where a key lands in the hash table depends on which program came first. What is read from the
table does not: the lowest column of each row that names the key. So the union's order is fixed.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparse_mla.packing import FREE, Packing

EMPTY = tl.constexpr(FREE)
INSERT_BLOCK = 512
UNION_BLOCK = 2048


@triton.jit(do_not_specialize=["slots", "empty"])
def insert_keys(
    indices, lengths, tables, cells, topk, slots, empty,
    ROWS: tl.constexpr, CELLS: tl.constexpr, BLOCK: tl.constexpr, HAS_LENGTHS: tl.constexpr,
):  # fmt: skip
    """Enter the columns of row program_id(0) into its group's table.

    tables int32 [groups, 1 + ROWS, CELLS], all EMPTY: the key of each cell, then for each row the
    lowest column that names it. cells int32 [T, topk]: where each column landed, -1 for no key.
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    end = topk
    if HAS_LENGTHS:
        end = tl.minimum(tl.load(lengths + row), topk)
    key = tl.load(indices + row * topk + column, mask=column < end, other=-1).to(tl.int64)
    there = (key >= 0) & (key < slots) & (key != empty)
    key = tl.where(there, key, 0).to(tl.int32)
    table = tables + (row // ROWS) * (1 + ROWS) * CELLS
    # Knuth's multiplicative hashing: the product's high bits are its best.
    cell = (((key * -1640531527) >> 12) & (CELLS - 1)).to(tl.int32)
    searching = there
    while tl.max(searching.to(tl.int32), 0) > 0:
        # A lane that is done compares with what no cell holds, which changes nothing.
        seen = tl.atomic_cas(table + cell, tl.where(searching, EMPTY, -2), key)
        searching = searching & (seen != EMPTY) & (seen != key)
        cell = tl.where(searching, (cell + 1) & (CELLS - 1), cell)
    tl.atomic_min(table + (1 + row % ROWS) * CELLS + cell, column, mask=there)
    tl.store(cells + row * topk + column, tl.where(there, cell, -1), mask=column < topk)


@triton.jit
def write_union(
    indices, tables, cells, union, members, counts, topk,
    ROWS: tl.constexpr, CELLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The union of group program_id(0), its members and its length, from what insert_keys left."""
    group = tl.program_id(0).to(tl.int64)
    table = tables + group * (1 + ROWS) * CELLS
    base = group * ROWS * topk
    written = tl.zeros([], tl.int32)
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + tl.arange(0, BLOCK)
        inside = flat < ROWS * topk
        row = flat // topk
        cell = tl.load(cells + base + flat, mask=inside, other=-1)
        there = cell >= 0
        bits = tl.zeros([BLOCK], tl.int32)
        first = tl.full([BLOCK], ROWS, tl.int32)
        own = tl.full([BLOCK], -1, tl.int32)
        for back in tl.static_range(ROWS):
            other = ROWS - 1 - back
            lowest = tl.load(table + (1 + other) * CELLS + cell, mask=there, other=EMPTY)
            has = lowest != EMPTY
            bits = tl.where(has, bits | (1 << other), bits)
            first = tl.where(has, other, first)
            own = tl.where(row == other, lowest, own)
        # A row's second naming of a slot stands for itself, for that row alone.
        again = own != flat % topk
        emit = there & (again | (first == row))
        at = written + tl.cumsum(emit.to(tl.int32), 0) - 1
        key = tl.load(indices + base + flat, mask=emit, other=0).to(tl.int32)
        tl.store(union + base + at, key, mask=emit)
        tl.store(members + base + at, tl.where(again, 1 << row, bits), mask=emit)
        written += tl.sum(emit.to(tl.int32), 0)
    tl.store(counts + group, written)


def launch_packing(
    packing: Packing, indices: Tensor, lengths: Tensor | None, slots: int, empty_index: int
) -> None:
    """Fill `packing` from indices [T, topk]."""
    rows, topk = packing.rows, packing.topk
    groups = len(packing.counts)
    cells = triton.next_power_of_2(rows * topk + rows * topk // 4)
    tables = torch.full((groups, 1 + rows, cells), FREE, dtype=torch.int32, device=indices.device)
    landed = torch.empty(indices.shape, dtype=torch.int32, device=indices.device)
    block = min(INSERT_BLOCK, triton.next_power_of_2(topk))
    insert_keys[(len(indices), triton.cdiv(topk, block))](
        indices, indices if lengths is None else lengths, tables, landed, topk, slots, empty_index,
        ROWS=rows, CELLS=cells, BLOCK=block, HAS_LENGTHS=lengths is not None, num_warps=4,
    )  # fmt: skip
    union_block = min(UNION_BLOCK, triton.next_power_of_2(rows * topk))
    write_union[(groups,)](
        indices, tables, landed, packing.indices, packing.members, packing.counts, topk,
        ROWS=rows, CELLS=cells, BLOCK=union_block, num_warps=8,
    )  # fmt: skip
