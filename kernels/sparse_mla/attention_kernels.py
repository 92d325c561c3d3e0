"""Triton kernels of sparse MLA: attention over one range of columns, and the merge of ranges.

One program takes a row, a block of its heads and a range of its columns. Scores and sums are
float32 and in base 2; a masked key is never read and its weight is set, not multiplied, to 0.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from sparse_mla.configs import Case

# Below every score, and finite: the difference of two of them is 0 and not NaN.
NONE = tl.constexpr(-1.0e30)
LN2 = tl.constexpr(0.6931471805599453)
SCALE_TENSOR = tl.constexpr(1)
SCALE_ROW = tl.constexpr(2)
MERGE_CHUNK = 16


@triton.jit
def _slots(indices, row, columns, end, topk, slots, empty):
    """Slots of a row's columns, negative where there is no key."""
    found = tl.load(indices + row * topk + columns, mask=columns < end, other=-1)
    return tl.where((found < slots) & (found != empty), found, -1)


# Four FP8 values as float16, in which e4m3 is exact.
OPEN = tl.constexpr(
    "{ .reg .b16 low, high; mov.b32 {low, high}, $2; "
    "cvt.rn.f16x2.e4m3x2 $0, low; cvt.rn.f16x2.e4m3x2 $1, high; }"
)


@triton.jit
def _shrink(largest):
    """The power of two that brings `largest` under 2^10; 2^-10 for zeros.

    FP8 keys are multiplied as float16, in which e4m3 is exact; a query of any size fits there
    after division by this.
    """
    safe = tl.where(largest > 0, largest, 1.0)
    return tl.exp2(tl.ceil(tl.log2(safe)) - 10.0)


@triton.jit
def _opened(keys, PTX: tl.constexpr):
    """FP8 keys as float16.

    PTX: in an instruction that the compiler takes to have effects. It would otherwise convert each
    operand of a product where it is read, byte by byte from shared memory.
    """
    if PTX:
        return tl.inline_asm_elementwise(
            OPEN, "=r,=r,r", [keys], dtype=tl.float16, is_pure=False, pack=4
        )
    return keys.to(tl.float16)


@triton.jit(do_not_specialize=["slots", "empty", "splits"])
def partial_attention(
    query, cache, indices, lengths, members, cache_scale,
    out, lse, scale2, topk, slots, empty, columns_per_split, splits,
    query_row, query_head, cache_row,
    HEADS: tl.constexpr, HEADS_PER_ROW: tl.constexpr,
    RANK: tl.constexpr, ROPE: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_N: tl.constexpr,
    HAS_LENGTHS: tl.constexpr, PACKED: tl.constexpr, SCALE: tl.constexpr,
    HALF: tl.constexpr, PTX: tl.constexpr, UPCAST: tl.constexpr, SPLIT: tl.constexpr,
    EARLY: tl.constexpr, DENSE: tl.constexpr,
):  # fmt: skip
    """out [T, splits, HEADS, RANK] and lse [T, splits, HEADS] of each range of columns.

    With SPLIT both are float32 and lse is in base 2; without it `splits` is 1 and they are the
    result. With PACKED a row stands for HEADS / HEADS_PER_ROW rows that share one list, and bit r
    of members [T, topk] tells whether row r of them has the key. DENSE: rows of cache and heads of
    query lie end to end, so that their distance is known at compile time.
    """
    if EARLY:
        gdc_launch_dependents()
    if DENSE:
        cache_row = RANK + ROPE
        query_head = RANK + ROPE
    blocks: tl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    program = tl.program_id(0)
    head = (program % blocks) * BLOCK_H + tl.arange(0, BLOCK_H)
    split = (program // blocks) % splits
    row = (program // blocks // splits).to(tl.int64)
    is_head = head < HEADS
    columns = tl.arange(0, BLOCK_N)
    rank = tl.arange(0, RANK)

    begin = split * columns_per_split
    end = tl.minimum(begin + columns_per_split, topk)
    if HAS_LENGTHS:
        end = tl.minimum(end, tl.load(lengths + row))
    found = _slots(indices, row, begin + columns, end, topk, slots, empty)

    base = query + row * query_row
    latent_at = head[:, None] * query_head + rank[None, :]
    q = tl.load(base + latent_at, mask=is_head[:, None], other=0.0)
    if ROPE:
        rope = RANK + tl.arange(0, ROPE)
        rope_at = head[:, None] * query_head + rope[None, :]
        q_rope = tl.load(base + rope_at, mask=is_head[:, None], other=0.0)
    if HALF:
        largest = tl.max(tl.abs(q.to(tl.float32)), 1)
        if ROPE:
            largest = tl.maximum(largest, tl.max(tl.abs(q_rope.to(tl.float32)), 1))
        shrink = _shrink(largest)
        factor = (shrink * scale2)[:, None]
        q = (q.to(tl.float32) / shrink[:, None]).to(tl.float16)
        if ROPE:
            q_rope = (q_rope.to(tl.float32) / shrink[:, None]).to(tl.float16)
    else:
        factor = scale2
    if UPCAST:
        q = q.to(tl.float32)
        if ROPE:
            q_rope = q_rope.to(tl.float32)
    if SCALE == SCALE_TENSOR:
        factor = factor * tl.load(cache_scale)

    top = tl.full([BLOCK_H], NONE, tl.float32)
    total = tl.zeros([BLOCK_H], tl.float32)
    acc = tl.zeros([BLOCK_H, RANK], tl.float32)
    for start in range(begin, end, BLOCK_N):
        # The next tile's slots are loaded one turn ahead, so that the gather that needs them can
        # be issued at once.
        ahead = start + BLOCK_N + columns
        next_found = _slots(indices, row, ahead, end, topk, slots, empty)
        there = found >= 0
        keys_at = cache + found.to(tl.int64)[:, None] * cache_row
        k = tl.load(keys_at + rank[None, :], mask=there[:, None], other=0.0)
        if HALF:
            k = _opened(k, PTX)
        if UPCAST:
            k = k.to(tl.float32)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if ROPE:
            k_rope = tl.load(keys_at + rope[None, :], mask=there[:, None], other=0.0)
            if HALF:
                k_rope = k_rope.to(tl.float16)
            if UPCAST:
                k_rope = k_rope.to(tl.float32)
            scores = tl.dot(q_rope, tl.trans(k_rope), scores, input_precision="ieee")
        scores = scores * factor
        mask = there[None, :]
        if PACKED:
            member = tl.load(members + row * topk + start + columns, mask=there, other=0)
            mask = ((member[None, :] >> (head // HEADS_PER_ROW)[:, None]) & 1) != 0
        if SCALE == SCALE_ROW:
            # A key's scale goes into the exponent of its weight: a weight times a scale could
            # leave float16's range, the weight that is largest after scaling is 1.
            size = tl.load(cache_scale + found, mask=there, other=1.0)
            log_size = tl.log2(tl.maximum(size, 1.0e-30))
            scores = tl.where(mask, scores * size[None, :], NONE)
            weighed = tl.where(mask, scores + log_size[None, :], NONE)
            new_top = tl.maximum(top, tl.max(weighed, 1))
            p = tl.where(mask, tl.exp2(weighed - new_top[:, None]), 0.0)
            bare = tl.where(mask, tl.exp2(scores - new_top[:, None]), 0.0)
        else:
            scores = tl.where(mask, scores, NONE)
            new_top = tl.maximum(top, tl.max(scores, 1))
            p = tl.where(mask, tl.exp2(scores - new_top[:, None]), 0.0)
            bare = p
        shrunk = tl.exp2(top - new_top)
        total = total * shrunk + tl.sum(bare, 1)
        acc = tl.dot(p.to(k.dtype), k, acc * shrunk[:, None], input_precision="ieee")
        top = new_top
        found = next_found

    if SCALE == SCALE_TENSOR:
        acc = acc * tl.load(cache_scale)
    empty_row = total == 0.0
    acc = acc / tl.where(empty_row, 1.0, total)[:, None]
    log = tl.where(empty_row, float("-inf"), top + tl.log2(tl.where(empty_row, 1.0, total)))
    if not SPLIT:
        log = log * LN2
    at = (row * splits + split) * HEADS + head
    tl.store(out + at[:, None] * RANK + rank[None, :], acc.to(out.dtype.element_ty),
             mask=is_head[:, None])  # fmt: skip
    tl.store(lse + at, log, mask=is_head)


@triton.jit(do_not_specialize=["splits"])
def merge_splits(
    parts, part_lse, out, lse, splits,
    HEADS: tl.constexpr, RANK: tl.constexpr, BLOCK_S: tl.constexpr, CHUNK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Join parts [T, splits, HEADS, RANK] by their base-2 part_lse into out and natural lse.

    At most BLOCK_S splits, whose values are read CHUNK at a time, always in the same order. With
    EARLY it is launched beside the kernel that writes the parts, and waits for it here.
    """
    if EARLY:
        gdc_wait()
    at = tl.program_id(0).to(tl.int64)
    first = (at // HEADS) * splits * HEADS + at % HEADS
    number = tl.arange(0, BLOCK_S)
    logs = tl.load(part_lse + first + number * HEADS, mask=number < splits, other=float("-inf"))
    # A NaN has to come through: max drops it, the sum below does not.
    top = tl.max(logs, 0)
    top = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2(logs - top), 0)
    rank = tl.arange(0, RANK)
    joined = tl.zeros([RANK], tl.float32)
    for start in range(0, splits, CHUNK):
        part = start + tl.arange(0, CHUNK)
        offsets = first + part * HEADS
        log = tl.load(part_lse + offsets, mask=part < splits, other=float("-inf"))
        share = tl.exp2(log - top)
        # What an empty split left in its part is not read.
        mask = (part < splits) & (share != 0.0)
        tile = tl.load(
            parts + offsets[:, None] * RANK + rank[None, :], mask=mask[:, None], other=0.0
        )
        joined += tl.sum(tile * share[:, None], 0)
    empty = total == 0.0
    joined = joined / tl.where(empty, 1.0, total)
    log = tl.where(empty, float("-inf"), (top + tl.log2(tl.where(empty, 1.0, total))) * LN2)
    tl.store(out + at * RANK + rank, joined.to(out.dtype.element_ty))
    tl.store(lse + at, log)


def launches_early(case: Case) -> bool:
    """Whether the merge is launched beside the splits (Hopper's dependent launch)."""
    return case.split and case.architecture == "sm_90"


def merge_constants(heads: int, rank: int, splits: int, early: bool) -> dict[str, int | bool]:
    """The compile-time arguments of merge_splits."""
    block = triton.next_power_of_2(splits)
    return {
        "HEADS": heads,
        "RANK": rank,
        "BLOCK_S": block,
        "CHUNK": min(block, MERGE_CHUNK),
        "EARLY": early,
    }


def merge_warps(splits: int) -> int:
    """Warps of one program of merge_splits: few where there is little to read."""
    block: int = triton.next_power_of_2(splits)
    return max(1, min(8, block // 2))


def launch_merge(parts: Tensor, part_lse: Tensor, out: Tensor, lse: Tensor, early: bool) -> None:
    """Launch merge_splits for parts [T, splits, heads, rank], early where the device can."""
    rows, splits, heads, rank = parts.shape
    merge_splits[(rows * heads,)](
        parts, part_lse, out, lse, splits,
        **merge_constants(heads, rank, splits, early), num_warps=merge_warps(splits),
        **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
