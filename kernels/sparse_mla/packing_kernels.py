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
# So that tests of small lists take several turns, too.
INTERPRETED_BLOCK = 64
# A cell's mark: bit r for row r, and this one where a row names the key more than once.
REPEATED = tl.constexpr(1 << 30)


@triton.jit
def _cell(key, MULTIPLIER: tl.constexpr, CELLS: tl.constexpr):
    return ((key * MULTIPLIER) >> 13) & (CELLS - 1)


@triton.jit
def _namings(indices, lengths, base, flat, topk, slots, empty,
             ROWS: tl.constexpr, HAS_LENGTHS: tl.constexpr):  # fmt: skip
    """Slots at places `flat` of a group's lists laid end to end, EMPTY where there is no key."""
    row = flat // topk
    inside = row < ROWS
    if HAS_LENGTHS:
        end = tl.load(lengths + base // topk + row, mask=inside, other=0)
        inside = inside & (flat - row * topk < end)
    key = tl.load(indices + base + flat, mask=inside, other=-1)
    there = (key >= 0) & (key < slots) & (key != empty)
    return tl.where(there, key, EMPTY).to(tl.int32)


@triton.jit
def _home(keys, key, CELLS: tl.constexpr):
    """The cell that `key` owns in the first table, or else its one in the second."""
    first = _cell(key, FIRST_HASH, CELLS)
    # Volatile: other threads' atomics are not in this one's L1 cache.
    won = tl.load(keys + first, volatile=True) == key
    return tl.where(won, first, CELLS + _cell(key, SECOND_HASH, CELLS))


@triton.jit(do_not_specialize=["slots", "empty"])
def build_union(
    indices, lengths, tables, union, members, counts, topk, slots, empty,
    ROWS: tl.constexpr, CELLS: tl.constexpr, BLOCK: tl.constexpr, HAS_LENGTHS: tl.constexpr,
):  # fmt: skip
    """The union of group program_id(0) of indices [T, topk], its members and its length.

    tables int32 [groups, 2, 2 * CELLS], of any content: the key of each cell, then its mark.
    """
    group = tl.program_id(0).to(tl.int64)
    keys = tables + group * 4 * CELLS
    marks = keys + 2 * CELLS
    base = group * ROWS * topk
    lane = tl.arange(0, BLOCK)
    for start in range(0, 2 * CELLS, BLOCK):
        inside = start + lane < 2 * CELLS
        tl.store(keys + start + lane, EMPTY, mask=inside)
        tl.store(marks + start + lane, 0, mask=inside)
    tl.debug_barrier()
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + lane
        key = _namings(indices, lengths, base, flat, topk, slots, empty, ROWS, HAS_LENGTHS)
        tl.atomic_min(keys + _cell(key, FIRST_HASH, CELLS), key, mask=key != EMPTY)
    tl.debug_barrier()
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + lane
        key = _namings(indices, lengths, base, flat, topk, slots, empty, ROWS, HAS_LENGTHS)
        home = _home(keys, key, CELLS)
        tl.atomic_min(keys + home, key, mask=(key != EMPTY) & (home >= CELLS))
    tl.debug_barrier()
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + lane
        key = _namings(indices, lengths, base, flat, topk, slots, empty, ROWS, HAS_LENGTHS)
        home = _home(keys, key, CELLS)
        owned = (key != EMPTY) & (tl.load(keys + home, volatile=True) == key)
        bit = 1 << (flat // topk)
        seen = tl.atomic_or(marks + home, bit, mask=owned)
        tl.atomic_or(marks + home, REPEATED, mask=owned & ((seen & bit) != 0))
    tl.debug_barrier()
    written = tl.zeros([], tl.int32)
    for start in range(0, ROWS * topk, BLOCK):
        flat = start + lane
        key = _namings(indices, lengths, base, flat, topk, slots, empty, ROWS, HAS_LENGTHS)
        home = _home(keys, key, CELLS)
        owned = (key != EMPTY) & (tl.load(keys + home, volatile=True) == key)
        mark = tl.load(marks + home, mask=owned, other=REPEATED, volatile=True)
        bit = 1 << (flat // topk)
        # Stands for itself and its row alone: what a row names again, a key that owns no cell.
        alone = (mark & REPEATED) != 0
        emit = (key != EMPTY) & (alone | ((mark & -mark) == bit))
        at = written + tl.cumsum(emit.to(tl.int32), 0) - 1
        tl.store(union + base + at, key, mask=emit)
        tl.store(members + base + at, tl.where(alone, bit, mark), mask=emit)
        written += tl.sum(emit.to(tl.int32), 0)
    tl.store(counts + group, written)


def union_constants(
    rows: int, topk: int, has_lengths: bool, largest: int = LARGEST_BLOCK
) -> dict[str, int | bool]:
    """The compile-time arguments of build_union, which takes `largest` namings at a time."""
    return {
        "ROWS": rows,
        "CELLS": max(64, triton.next_power_of_2(rows * topk // 2 + 1)),
        "BLOCK": min(largest, triton.next_power_of_2(rows * topk)),
        "HAS_LENGTHS": has_lengths,
    }


def union_warps(rows: int, topk: int) -> int:
    """Warps of one program of build_union: eight namings for each thread."""
    block: int = min(LARGEST_BLOCK, triton.next_power_of_2(rows * topk))
    return max(1, block // 256)


def launch_packing(
    packing: Packing, indices: Tensor, lengths: Tensor | None, slots: int, empty_index: int
) -> None:
    """Fill `packing` from indices [T, topk]."""
    rows, topk = packing.rows, packing.topk
    groups = len(packing.counts)
    largest = INTERPRETED_BLOCK if indices.device.type == "cpu" else LARGEST_BLOCK
    fixed = union_constants(rows, topk, lengths is not None, largest)
    tables = torch.empty((groups, 4, fixed["CELLS"]), dtype=torch.int32, device=indices.device)
    build_union[(groups,)](
        indices, indices if lengths is None else lengths, tables,
        packing.indices, packing.members, packing.counts, topk, slots, empty_index,
        **fixed, num_warps=union_warps(rows, topk),
    )  # fmt: skip
