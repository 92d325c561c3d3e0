"""Sparse MLA for Hopper in Gluon: one warpgroup gathers, two compute, each half of the value.

Plain Triton waits for a tile's gather before it computes. Here four warps do nothing but gather
(cp.async into shared memory, a barrier for each buffer), and two warpgroups each compute all
scores of the tile and their own half of the value's columns. Scores are computed twice, which
costs half as much again of matrix work, and in return the two never wait for each other.
BF16, heads in blocks of 64, a value of 512 columns, rope 0 or 64.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from sparse_mla.configs import Case

NONE = gl.constexpr(-1.0e30)
LN2 = gl.constexpr(0.6931471805599453)
HALF = gl.constexpr(256)
CONSUMERS = gl.constexpr(2)
THREADS = gl.constexpr(128)
COPY = gl.constexpr(gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0]))
FLAT = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
TILE = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2))
LIST = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def _copy_rows(pointer, width: gl.constexpr, mask, smem):
    """Gather rows [N, width] that start at pointer [N]; masked rows become zeros."""
    column = gl.arange(0, width, layout=gl.SliceLayout(0, COPY))
    async_copy.async_copy_global_to_shared(
        smem, pointer[:, None] + column[None, :], mask=mask[:, None]
    )


@gluon.jit
def _gather(
    query, cache, indices, members, row, head0, begin, end, topk, slots, empty,
    query_row, query_head, cache_row,
    q_left, q_right, q_rope, left, right, rope, found_smem, member_smem,
    q_ready, ready, free_left, free_right, turns,
    HEADS: gl.constexpr, ROPE: gl.constexpr, BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, PACKED: gl.constexpr,
):  # fmt: skip
    """The gathering warps: the query once, then tile after tile into the buffers."""
    rows: gl.constexpr = gl.SliceLayout(1, COPY)
    key = gl.arange(0, BLOCK_N, layout=rows)
    flat = gl.arange(0, BLOCK_N, layout=FLAT)
    list_at = indices + row * topk
    member_at = members + row * topk
    next_found = gl.load(list_at + begin + key, mask=begin + key < end, other=-1)
    head = head0 + gl.arange(0, BLOCK_H, layout=rows)
    q_at = query + row * query_row + head * query_head
    _copy_rows(q_at, HALF, head < HEADS, q_left.index(0))
    _copy_rows(q_at + HALF, HALF, head < HEADS, q_right.index(0))
    if ROPE:
        _copy_rows(q_at + 2 * HALF, ROPE, head < HEADS, q_rope.index(0))
    async_copy.mbarrier_arrive(q_ready, increment_count=False)

    tile = 0
    for start in range(begin, end, BLOCK_N):
        found = next_found
        ahead = start + BLOCK_N + key
        next_found = gl.load(list_at + ahead, mask=ahead < end, other=-1)
        there = (found >= 0) & (found < slots) & (found != empty)
        at = cache + found.to(gl.int64) * cache_row
        stage = tile % STAGES
        phase = ((tile // STAGES) & 1) ^ 1
        mbarrier.wait(free_left.index(stage), phase)
        _copy_rows(at, HALF, there, left.index(stage))
        mbarrier.wait(free_right.index(stage), phase)
        _copy_rows(at + HALF, HALF, there, right.index(stage))
        if ROPE:
            _copy_rows(at + 2 * HALF, ROPE, there, rope.index(stage))
        inside = start + flat < end
        async_copy.async_copy_global_to_shared(
            found_smem.index(stage), list_at + start + flat, mask=inside
        )
        if PACKED:
            async_copy.async_copy_global_to_shared(
                member_smem.index(stage), member_at + start + flat, mask=inside
            )
        async_copy.mbarrier_arrive(ready.index(stage), increment_count=False)
        tile += 1  # noqa: SIM113


@gluon.jit
def _attend(
    half: gl.constexpr, out, lse, at0, head0, begin, end, slots, empty, scale2,
    q_left, q_right, q_rope, left, right, rope, found_smem, member_smem,
    q_ready, ready, free_left, free_right, turns,
    HEADS: gl.constexpr, HEADS_PER_ROW: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    PACKED: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """A computing warpgroup: all scores, and columns half * 256 .. of the value."""
    scores_in: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    acc_in: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    weights_in: gl.constexpr = gl.DotOperandLayout(0, acc_in, 2)
    by_head: gl.constexpr = gl.SliceLayout(1, scores_in)
    by_key: gl.constexpr = gl.SliceLayout(0, scores_in)
    head = head0 + gl.arange(0, BLOCK_H, layout=by_head)
    key = gl.arange(0, BLOCK_N, layout=by_key)
    top = gl.full([BLOCK_H], NONE, gl.float32, layout=by_head)
    total = gl.full([BLOCK_H], 0.0, gl.float32, layout=by_head)
    acc = gl.zeros([BLOCK_H, HALF], gl.float32, layout=acc_in)
    # A half of a buffer is free once its scores are computed twice and its value is used once.
    mine = free_left if half == 0 else free_right
    others = free_right if half == 0 else free_left
    mbarrier.wait(q_ready, 0)
    tile = 0
    for start in range(begin, end, BLOCK_N):
        stage = tile % STAGES
        mbarrier.wait(ready.index(stage), (tile // STAGES) & 1)
        # Taking turns at the scores, one computes its softmax while the other multiplies.
        mbarrier.wait(turns.index(half), (tile & 1) ^ (1 - half))
        # cp.async wrote through the generic proxy, wgmma reads through the asynchronous one.
        hopper.fence_async_shared()
        # Always 0, which the compiler cannot know: it would keep the addresses of all of the
        # query's parts in registers through the loop, and there are none to spare.
        zero = tile >> 30
        scores = gl.zeros([BLOCK_H, BLOCK_N], gl.float32, layout=scores_in)
        scores = hopper.warpgroup_mma(
            q_left.index(zero), left.index(stage).permute((1, 0)), scores,
            use_acc=False, is_async=True,
        )
        scores = hopper.warpgroup_mma(
            q_right.index(zero), right.index(stage).permute((1, 0)), scores, is_async=True
        )
        if ROPE:
            scores = hopper.warpgroup_mma(
                q_rope.index(zero), rope.index(stage).permute((1, 0)), scores, is_async=True
            )
        found = found_smem.index(stage).load(by_key)
        there = (start + key < end) & (found >= 0) & (found < slots) & (found != empty)
        mask = there[None, :]
        if PACKED:
            member = member_smem.index(stage).load(by_key)
            mask = mask & (((member[None, :] >> (head // HEADS_PER_ROW)[:, None]) & 1) != 0)
        scores = hopper.warpgroup_mma_wait(0, deps=[scores])
        mbarrier.arrive(turns.index(1 - half), count=1)
        mbarrier.arrive(others.index(stage), count=1)
        scores = gl.where(mask, scores * scale2, NONE)
        new_top = gl.maximum(top, gl.max(scores, 1))
        p = gl.where(mask, gl.exp2(scores - new_top[:, None]), 0.0)
        shrunk = gl.exp2(top - new_top)
        total = total * shrunk + gl.sum(p, 1)
        top = new_top
        acc = acc * gl.convert_layout(shrunk, gl.SliceLayout(1, acc_in))[:, None]
        weights = gl.convert_layout(p.to(gl.bfloat16), weights_in)
        value = left.index(stage) if half == 0 else right.index(stage)
        acc = hopper.warpgroup_mma(weights, value, acc, is_async=False)
        mbarrier.arrive(mine.index(stage), count=1)
        tile += 1  # noqa: SIM113

    none = total == 0.0
    whole = gl.where(none, 1.0, total)
    log = gl.where(none, float("-inf"), top + gl.log2(whole))
    if not SPLIT:
        log = log * LN2
    if half == 0:
        gl.store(lse + at0 + head, log, mask=head < HEADS)
    acc = acc * gl.convert_layout(1.0 / whole, gl.SliceLayout(1, acc_in))[:, None]
    row = head0 + gl.arange(0, BLOCK_H, layout=gl.SliceLayout(1, acc_in))
    column = half * HALF + gl.arange(0, HALF, layout=gl.SliceLayout(0, acc_in))
    place = out + (at0 + row)[:, None] * (2 * HALF) + column[None, :]
    gl.store(place, acc.to(out.dtype.element_ty), mask=(row < HEADS)[:, None])


@gluon.jit(do_not_specialize=["slots", "empty", "splits"])
def hopper_attention(
    query, cache, indices, lengths, members,
    out, lse, scale2, topk, slots, empty, columns_per_split, splits,
    query_row, query_head, cache_row,
    HEADS: gl.constexpr, HEADS_PER_ROW: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, PACKED: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """As attention_kernels.partial_attention, for a BF16 cache."""
    if SPLIT:
        gdc_launch_dependents()
    blocks: gl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    program = gl.program_id(0)
    head0 = (program % blocks) * BLOCK_H
    split = (program // blocks) % splits
    row = (program // blocks // splits).to(gl.int64)
    begin = split * columns_per_split
    end = gl.minimum(begin + columns_per_split, topk)
    if HAS_LENGTHS:
        end = gl.minimum(end, gl.load(lengths + row))

    wide: gl.constexpr = [STAGES, BLOCK_N, HALF]
    q_left = gl.allocate_shared_memory(gl.bfloat16, [1, BLOCK_H, HALF], TILE)
    q_right = gl.allocate_shared_memory(gl.bfloat16, [1, BLOCK_H, HALF], TILE)
    left = gl.allocate_shared_memory(gl.bfloat16, wide, TILE)
    right = gl.allocate_shared_memory(gl.bfloat16, wide, TILE)
    q_rope = q_left
    rope = left
    if ROPE:
        q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, BLOCK_H, ROPE], TILE)
        rope = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, ROPE], TILE)
    found_smem = gl.allocate_shared_memory(indices.dtype.element_ty, [STAGES, BLOCK_N], LIST)
    member_smem = found_smem
    if PACKED:
        member_smem = gl.allocate_shared_memory(gl.int32, [STAGES, BLOCK_N], LIST)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free_left = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free_right = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_ready, count=THREADS)
    for consumer in gl.static_range(CONSUMERS):
        mbarrier.init(turns.index(consumer), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=THREADS)
        mbarrier.init(free_left.index(stage), count=CONSUMERS)
        mbarrier.init(free_right.index(stage), count=CONSUMERS)

    at0 = (row * splits + split) * HEADS
    # In one expression: a tuple that gets a name loses its compile-time values.
    gl.warp_specialize(
        [
            (_gather, (
                query, cache, indices, members, row, head0, begin, end, topk, slots, empty,
                query_row, query_head, cache_row,
                q_left, q_right, q_rope, left, right, rope, found_smem, member_smem,
                q_ready, ready, free_left, free_right, turns,
                HEADS, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED,
            )),
            (_attend, (
                0, out, lse, at0, head0, begin, end, slots, empty, scale2,
                q_left, q_right, q_rope, left, right, rope, found_smem, member_smem,
                q_ready, ready, free_left, free_right, turns,
                HEADS, HEADS_PER_ROW, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, SPLIT,
            )),
            (_attend, (
                1, out, lse, at0, head0, begin, end, slots, empty, scale2,
                q_left, q_right, q_rope, left, right, rope, found_smem, member_smem,
                q_ready, ready, free_left, free_right, turns,
                HEADS, HEADS_PER_ROW, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, SPLIT,
            )),
        ],
        [4, 4],
        [224, 224],
    )  # fmt: skip


def launch_hopper(
    case: Case,
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    lengths: Tensor | None,
    members: Tensor | None,
    parts: Tensor,
    part_lse: Tensor,
    scale2: float,
    empty: int,
    columns_per_split: int,
    splits: int,
) -> None:
    """Launch hopper_attention for query [T, heads, D] and indices [T, topk]."""
    blocks = triton.cdiv(case.heads, case.config.block_h)
    hopper_attention[(len(query) * blocks * splits,)](
        query, cache, indices,
        indices if lengths is None else lengths, indices if members is None else members,
        parts, part_lse, scale2, indices.shape[1], len(cache), empty, columns_per_split, splits,
        query.stride(0), query.stride(1), cache.stride(0),
        **constants(case, lengths is not None), num_warps=4,
    )  # fmt: skip


def constants(case: Case, has_lengths: bool) -> dict[str, int | bool]:
    """The compile-time arguments of hopper_attention for a case."""
    return {
        "HEADS": case.heads,
        "HEADS_PER_ROW": case.heads // case.packed_rows,
        "ROPE": case.rope_dim,
        "BLOCK_H": case.config.block_h,
        "BLOCK_N": case.config.block_n,
        "STAGES": case.config.num_stages,
        "HAS_LENGTHS": has_lengths,
        "PACKED": case.packed_rows > 1,
        "SPLIT": case.split,
    }
