"""Sparse MLA for Hopper in Gluon: four warps gather, eight compute.

Plain Triton waits for a tile's gather before it computes. Here four warps do nothing but gather
(cp.async into shared memory, a barrier for each buffer), so that tiles arrive while two warpgroups
compute: each has half of a tile's keys in the scores and half of the value's columns in the result,
and they exchange weights through shared memory.
BF16, heads in blocks of 64, a value of 512 columns, rope 0 or 64.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from sparse_mla.attention_kernels import SCALE_ROW

NONE = gl.constexpr(-1.0e30)
LN2 = gl.constexpr(0.6931471805599453)
RANK = gl.constexpr(512)
WARPS = gl.constexpr(4)
FLAT = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
TILE = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2))
LIST = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))


@gluon.jit
def _copy_rows(pointer, width: gl.constexpr, mask, smem, COPY: gl.constexpr):
    """Gather rows [N, width] that start at pointer [N]; masked rows become zeros."""
    column = gl.arange(0, width, layout=gl.SliceLayout(0, COPY))
    async_copy.async_copy_global_to_shared(
        smem, pointer[:, None] + column[None, :], mask=mask[:, None]
    )


@gluon.jit
def gather(
    query, cache, indices, members, cache_scale, row, head0, begin, end, topk, slots, empty,
    query_row, query_head, cache_row,
    q_smem, q_rope, keys, ropes, found_smem, member_smem, size_smem, q_ready, ready, free,
    HEADS: gl.constexpr, ROPE: gl.constexpr, BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr, PACKED: gl.constexpr, SCALE: gl.constexpr, HALF: gl.constexpr,
):  # fmt: skip
    """The gathering warps: a BF16 query once, then tile after tile into the buffers.

    HALF: keys are FP8 and the query is not copied from here; with SCALE_ROW their scales come, too.
    """
    # 16 bytes for each thread.
    COPY: gl.constexpr = gl.BlockedLayout([1, 16 if HALF else 8], [4, 8], [WARPS, 1], [1, 0])
    rows: gl.constexpr = gl.SliceLayout(1, COPY)
    key = gl.arange(0, BLOCK_N, layout=rows)
    flat = gl.arange(0, BLOCK_N, layout=FLAT)
    list_at = indices + row * topk
    member_at = members + row * topk
    next_found = gl.load(list_at + begin + key, mask=begin + key < end, other=-1)
    if not HALF:
        head = head0 + gl.arange(0, BLOCK_H, layout=rows)
        q_at = query + row * query_row + head * query_head
        _copy_rows(q_at, RANK, head < HEADS, q_smem.index(0), COPY)
        if ROPE:
            _copy_rows(q_at + RANK, ROPE, head < HEADS, q_rope.index(0), COPY)
        async_copy.mbarrier_arrive(q_ready, increment_count=False)
    tile = 0
    for start in range(begin, end, BLOCK_N):
        found = next_found
        ahead = start + BLOCK_N + key
        next_found = gl.load(list_at + ahead, mask=ahead < end, other=-1)
        there = (found >= 0) & (found < slots) & (found != empty)
        at = cache + found.to(gl.int64) * cache_row
        stage = tile % STAGES
        mbarrier.wait(free.index(stage), ((tile // STAGES) & 1) ^ 1)
        _copy_rows(at, RANK, there, keys.index(stage), COPY)
        if ROPE:
            _copy_rows(at + RANK, ROPE, there, ropes.index(stage), COPY)
        inside = start + flat < end
        async_copy.async_copy_global_to_shared(
            found_smem.index(stage), list_at + start + flat, mask=inside
        )
        if PACKED:
            async_copy.async_copy_global_to_shared(
                member_smem.index(stage), member_at + start + flat, mask=inside
            )
        if SCALE == SCALE_ROW:
            slot = gl.load(list_at + start + flat, mask=inside, other=-1)
            known = (slot >= 0) & (slot < slots) & (slot != empty)
            async_copy.async_copy_global_to_shared(
                size_smem.index(stage), cache_scale + slot, mask=known
            )
        async_copy.mbarrier_arrive(ready.index(stage), increment_count=False)
        tile += 1  # noqa: SIM113


@gluon.jit
def own_part(
    lengths, topk, columns_per_split, splits,
    HEADS: gl.constexpr, BLOCK_H: gl.constexpr, HAS_LENGTHS: gl.constexpr,
):  # fmt: skip
    """What a program works on: its first head, its split, its row, and a range of its list."""
    blocks: gl.constexpr = (HEADS + BLOCK_H - 1) // BLOCK_H
    program = gl.program_id(0)
    head0 = (program % blocks) * BLOCK_H
    split = (program // blocks) % splits
    row = (program // blocks // splits).to(gl.int64)
    begin = split * columns_per_split
    end = gl.minimum(begin + columns_per_split, topk)
    if HAS_LENGTHS:
        end = gl.minimum(end, gl.load(lengths + row))
    return head0, split, row, begin, end


@gluon.jit
def allocate_lists(indices, STAGES: gl.constexpr, BLOCK_N: gl.constexpr, PACKED: gl.constexpr):
    """Shared memory for the slots of each buffer's keys, and for members where there are any."""
    found_smem = gl.allocate_shared_memory(indices.dtype.element_ty, [STAGES, BLOCK_N], LIST)
    member_smem = found_smem
    if PACKED:
        member_smem = gl.allocate_shared_memory(gl.int32, [STAGES, BLOCK_N], LIST)
    return found_smem, member_smem


@gluon.jit
def allocate_barriers(STAGES: gl.constexpr):
    """A barrier for each buffer that is filled, and one for each that is free again."""
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=32 * WARPS)
        mbarrier.init(free.index(stage), count=1)
    return ready, free


@gluon.jit
def _attend(
    out, lse, at0, head0, begin, end, slots, empty, scale2,
    q_smem, q_rope, keys, ropes, found_smem, member_smem, p_smem, q_ready, ready, free,
    HEADS: gl.constexpr, HEADS_PER_ROW: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    PACKED: gl.constexpr, SPLIT: gl.constexpr,
):  # fmt: skip
    """The computing warps: scores, softmax and weighted values of tile after tile."""
    scores_in: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, BLOCK_N // 2, 16])
    acc_in: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, RANK // 2, 16])
    by_head: gl.constexpr = gl.SliceLayout(1, scores_in)
    by_key: gl.constexpr = gl.SliceLayout(0, scores_in)
    head = head0 + gl.arange(0, BLOCK_H, layout=by_head)
    key = gl.arange(0, BLOCK_N, layout=by_key)
    top = gl.full([BLOCK_H], NONE, gl.float32, layout=by_head)
    # Summed up over keys at the end: each sum over a tile would cost an exchange between warps.
    totals = gl.zeros([BLOCK_H, BLOCK_N], gl.float32, layout=scores_in)
    acc = gl.zeros([BLOCK_H, RANK], gl.float32, layout=acc_in)
    mbarrier.wait(q_ready, 0)
    tile = 0
    for start in range(begin, end, BLOCK_N):
        stage = tile % STAGES
        mbarrier.wait(ready.index(stage), (tile // STAGES) & 1)
        # cp.async wrote through the generic proxy, wgmma reads through the asynchronous one.
        hopper.fence_async_shared()
        # Always 0, which the compiler cannot know: it would keep the addresses of all of the
        # query's parts in registers through the loop, and there are none to spare.
        zero = tile >> 30
        scores = gl.zeros([BLOCK_H, BLOCK_N], gl.float32, layout=scores_in)
        scores = hopper.warpgroup_mma(
            q_smem.index(zero), keys.index(stage).permute((1, 0)), scores,
            use_acc=False, is_async=True,
        )  # fmt: skip
        if ROPE:
            scores = hopper.warpgroup_mma(
                q_rope.index(zero), ropes.index(stage).permute((1, 0)), scores, is_async=True
            )
        found = found_smem.index(stage).load(by_key)
        there = (start + key < end) & (found >= 0) & (found < slots) & (found != empty)
        mask = there[None, :]
        if PACKED:
            member = member_smem.index(stage).load(by_key)
            mask = mask & (((member[None, :] >> (head // HEADS_PER_ROW)[:, None]) & 1) != 0)
        scores = hopper.warpgroup_mma_wait(0, deps=[scores])
        scores = gl.where(mask, scores * scale2, NONE)
        new_top = gl.maximum(top, gl.max(scores, 1))
        p = gl.where(mask, gl.exp2(scores - new_top[:, None]), 0.0)
        p_smem.store(p.to(gl.bfloat16))
        shrunk = gl.exp2(top - new_top)
        top = new_top
        totals = totals * shrunk[:, None] + p
        acc = acc * gl.convert_layout(shrunk, gl.SliceLayout(1, acc_in))[:, None]
        hopper.fence_async_shared()
        acc = hopper.warpgroup_mma(p_smem, keys.index(stage), acc, is_async=False)
        mbarrier.arrive(free.index(stage), count=1)
        tile += 1  # noqa: SIM113

    total = gl.sum(totals, 1)
    none = total == 0.0
    whole = gl.where(none, 1.0, total)
    log = gl.where(none, float("-inf"), top + gl.log2(whole))
    if not SPLIT:
        log = log * LN2
    gl.store(lse + at0 + head, log, mask=head < HEADS)
    acc = acc * gl.convert_layout(1.0 / whole, gl.SliceLayout(1, acc_in))[:, None]
    row = head0 + gl.arange(0, BLOCK_H, layout=gl.SliceLayout(1, acc_in))
    column = gl.arange(0, RANK, layout=gl.SliceLayout(0, acc_in))
    place = out + (at0 + row)[:, None] * RANK + column[None, :]
    gl.store(place, acc.to(out.dtype.element_ty), mask=(row < HEADS)[:, None])


@gluon.jit(do_not_specialize=["slots", "empty", "splits"])
def hopper_attention(
    query, cache, indices, lengths, members, cache_scale,
    out, lse, scale2, topk, slots, empty, columns_per_split, splits,
    query_row, query_head, cache_row,
    HEADS: gl.constexpr, HEADS_PER_ROW: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, PACKED: gl.constexpr, SPLIT: gl.constexpr, DENSE: gl.constexpr,
):  # fmt: skip
    """As attention_kernels.partial_attention, for a BF16 cache, which has no scales."""
    if SPLIT:
        gdc_launch_dependents()
    if DENSE:
        cache_row = RANK + ROPE
        query_head = RANK + ROPE
    head0, split, row, begin, end = own_part(
        lengths, topk, columns_per_split, splits, HEADS, BLOCK_H, HAS_LENGTHS
    )

    q_smem = gl.allocate_shared_memory(gl.bfloat16, [1, BLOCK_H, RANK], TILE)
    keys = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, RANK], TILE)
    p_smem = gl.allocate_shared_memory(gl.bfloat16, [BLOCK_H, BLOCK_N], TILE)
    q_rope = q_smem
    ropes = keys
    if ROPE:
        q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, BLOCK_H, ROPE], TILE)
        ropes = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_N, ROPE], TILE)
    found_smem, member_smem = allocate_lists(indices, STAGES, BLOCK_N, PACKED)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_ready, count=32 * WARPS)
    ready, free = allocate_barriers(STAGES)

    # In one expression: a tuple that gets a name loses its compile-time values.
    gl.warp_specialize(
        [
            (gather, (
                query, cache, indices, members, cache_scale, row, head0, begin, end, topk,
                slots, empty, query_row, query_head, cache_row, q_smem, q_rope, keys, ropes,
                found_smem, member_smem, found_smem, q_ready, ready, free,
                HEADS, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, 0, False,
            )),
            (_attend, (
                out, lse, (row * splits + split) * HEADS, head0, begin, end, slots, empty, scale2,
                q_smem, q_rope, keys, ropes, found_smem, member_smem, p_smem,
                q_ready, ready, free,
                HEADS, HEADS_PER_ROW, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, SPLIT,
            )),
        ],
        [8],
        [216],
    )  # fmt: skip
