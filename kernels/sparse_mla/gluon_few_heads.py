"""Sparse MLA for Hopper with few heads, in Gluon: keys and value columns are the rows of a wgmma.

A wgmma has 64 rows; up to 16 heads would leave most of them empty. So the products are transposed:
scores are [keys, heads], the result is [columns, heads], and heads are the narrow side. Four warps
gather, two warpgroups compute, each with every second tile: while one waits for its products, the
other one has the tensor cores. The result lies in four parts of 128 columns. For an FP8 cache the
operands come from gluon_fp8.py, and the query is float16, too.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from sparse_mla.attention_kernels import SCALE_ROW, SCALE_TENSOR
from sparse_mla.gluon_fp8 import (
    PART,
    RAW,
    RAW_ROPE,
    WEIGHTS,
    add_values,
    columns_in_order,
    in_order_of_scores,
    in_order_of_values,
    read_values,
    scores_of,
)
from sparse_mla.gluon_kernels import (
    LIST,
    LN2,
    NONE,
    RANK,
    TILE,
    WARPS,
    allocate_barriers,
    allocate_lists,
    gather,
    own_part,
)

# The result [columns, heads]: columns side by side, those of a pair of heads in banks of their own.
RESULT = gl.constexpr(gl.SwizzledSharedLayout(8, 2, 4, [0, 1]))
# The highest scores of all warps [4, H] in each thread that has the heads' column of scores.
TOPS = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 8], [1, 0], [2, 0]],
        [[0, 2], [0, 4], [0, 0], [0, 0], [0, 0]],
        [[0, 0], [0, 0]],
        [],
        [4, 16],
    )
)
# Octaves by which a tile's highest score may pass that of earlier ones before all is scaled.
HIGHER = gl.constexpr(10.0)
# Octaves above one that a float16 query's values stay under.
HIGHEST = gl.constexpr(10.0)


@gluon.jit
def _store_query(
    query_row, query_head, head0, q_smem, q_rope, shrink_smem, q_ready,
    HEADS: gl.constexpr, BLOCK_H: gl.constexpr, ROPE: gl.constexpr,
):  # fmt: skip
    """The query as float16, each head divided by a power of two that brings it under 2^10."""
    BY_HEAD: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [4, 1], [1, 0])
    head = head0 + gl.arange(0, BLOCK_H, layout=gl.SliceLayout(1, BY_HEAD))
    is_head = (head < HEADS)[:, None]
    at = (query_row + head * query_head)[:, None]
    column = gl.arange(0, RANK, layout=gl.SliceLayout(0, BY_HEAD))
    q = gl.load(at + column[None, :], mask=is_head, other=0.0).to(gl.float32)
    largest = gl.max(gl.abs(q), 1)
    if ROPE:
        beyond = RANK + gl.arange(0, ROPE, layout=gl.SliceLayout(0, BY_HEAD))
        r = gl.load(at + beyond[None, :], mask=is_head, other=0.0).to(gl.float32)
        largest = gl.maximum(largest, gl.max(gl.abs(r), 1))
    safe = gl.where(largest > 0, largest, 1.0)
    shrink = gl.exp2(gl.ceil(gl.log2(safe)) - HIGHEST)
    q_smem.index(0).store(in_order_of_scores((q / shrink[:, None]).to(gl.float16)))
    if ROPE:
        q_rope.index(0).store(in_order_of_scores((r / shrink[:, None]).to(gl.float16)))
    shrink_smem.store(shrink)
    hopper.fence_async_shared()
    mbarrier.arrive(q_ready, count=1)


@gluon.jit
def _scores(keys, rope, q, q_rope, ROPE: gl.constexpr, mma: gl.constexpr):
    """The products [keys, H] of BF16 keys with the query."""
    # Keys were written through the generic proxy, wgmma reads through the asynchronous one.
    hopper.fence_async_shared()
    N: gl.constexpr = keys.shape[0]
    H: gl.constexpr = q.shape[0]
    total = gl.zeros([N, H], gl.float32, layout=mma)
    total = hopper.warpgroup_mma(keys, q.permute((1, 0)), total, use_acc=False, is_async=True)
    if ROPE:
        total = hopper.warpgroup_mma(rope, q_rope.permute((1, 0)), total, is_async=True)
    return hopper.warpgroup_mma_wait(0, deps=[total])


@gluon.jit
def _add_values(keys, p_smem, acc0, acc1, acc2, acc3):
    """Add the weighted values of BF16 keys to the four parts of the result."""
    weights = p_smem.permute((1, 0))
    values = keys.permute((1, 0))
    acc0 = hopper.warpgroup_mma(values.slice(0, PART), weights, acc0, is_async=True)
    acc1 = hopper.warpgroup_mma(values.slice(PART, PART), weights, acc1, is_async=True)
    acc2 = hopper.warpgroup_mma(values.slice(2 * PART, PART), weights, acc2, is_async=True)
    acc3 = hopper.warpgroup_mma(values.slice(3 * PART, PART), weights, acc3, is_async=True)
    return hopper.warpgroup_mma_wait(0, deps=[acc0, acc1, acc2, acc3])


@gluon.jit
def _weighed(scores, factor, mask, size, SCALE: gl.constexpr):
    """Scores in base 2, NONE where a head has no key, and the logarithms of the keys' weights.

    They differ by a key's own scale, which goes into its weight.
    """
    scores = scores * factor[None, :]
    scores = gl.where(mask, scores, NONE)
    weighed = scores
    if SCALE == SCALE_ROW:
        scores = gl.where(mask, scores * size[:, None], NONE)
        weighed = gl.where(mask, scores + gl.log2(gl.maximum(size, 1.0e-30))[:, None], NONE)
    return scores, weighed


@gluon.jit
def _store_weights(weights, p, size, ODD: gl.constexpr, SCALE: gl.constexpr, HALF: gl.constexpr):
    """Store a tile's weights [keys, H], with each key's own scale if it has one."""
    if SCALE == SCALE_ROW:
        p = p * size[:, None]
    if HALF:
        first, second = in_order_of_values(p.to(gl.float16))
        weights.index(2 * ODD).permute((1, 0)).store(first)
        weights.index(2 * ODD + 1).permute((1, 0)).store(second)
    else:
        weights.index(ODD).permute((1, 0)).store(p.to(gl.bfloat16))


@gluon.jit
def _attend(
    query, out, lse, cache_scale, row, at0, head0, begin, end, slots, empty, scale2,
    query_row, query_head,
    q_smem, q_rope, keys, ropes, found_smem, member_smem, size_smem, shrink_smem, weights,
    sums_smem, tops_smem, q_ready, ready, free, halved,
    HEADS: gl.constexpr, HEADS_PER_ROW: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    PACKED: gl.constexpr, SCALE: gl.constexpr, HALF: gl.constexpr, SPLIT: gl.constexpr,
    ODD: gl.constexpr,
):  # fmt: skip
    """One computing warpgroup: scores, softmax and weighted values of its half of the tiles.

    The odd group's half comes to the even one at the end.
    """
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_H, 16])
    by_head: gl.constexpr = gl.SliceLayout(0, mma)
    by_key: gl.constexpr = gl.SliceLayout(1, mma)
    if HALF and ODD == 0:
        _store_query(
            query + row * query_row, query_head, head0, q_smem, q_rope, shrink_smem, q_ready,
            HEADS, BLOCK_H, ROPE,
        )  # fmt: skip
    head = head0 + gl.arange(0, BLOCK_H, layout=by_head)
    key = gl.arange(0, BLOCK_N, layout=by_key)
    top = gl.full([BLOCK_H], NONE, gl.float32, layout=by_head)
    # Summed up over keys at the end: each sum over a tile would cost an exchange between warps.
    totals = gl.zeros([BLOCK_N, BLOCK_H], gl.float32, layout=mma)
    acc0 = gl.zeros([PART, BLOCK_H], gl.float32, layout=mma)
    acc1 = gl.zeros([PART, BLOCK_H], gl.float32, layout=mma)
    acc2 = gl.zeros([PART, BLOCK_H], gl.float32, layout=mma)
    acc3 = gl.zeros([PART, BLOCK_H], gl.float32, layout=mma)
    factor = gl.full([BLOCK_H], scale2, gl.float32, layout=by_head)
    mbarrier.wait(q_ready, 0)
    if HALF:
        factor = factor * shrink_smem.load(by_head)
    if SCALE == SCALE_TENSOR:
        factor = factor * gl.load(cache_scale)
    tiles = (gl.maximum(end - begin, 0) + BLOCK_N - 1) // BLOCK_N
    for tile in range(ODD, tiles, 2):
        start = begin + tile * BLOCK_N
        # Always 0, which the compiler cannot know: it would keep the addresses of all parts of the
        # query, and of keys that always lie in one buffer, in registers through the loop.
        zero = tile >> 30
        stage = tile % STAGES + zero
        mbarrier.wait(ready.index(stage), (tile // STAGES) & 1)
        found = found_smem.index(stage).load(by_key)
        there = (start + key < end) & (found >= 0) & (found < slots) & (found != empty)
        mask = there[:, None]
        if PACKED:
            member = member_smem.index(stage).load(by_key)
            mask = mask & (((member[:, None] >> (head // HEADS_PER_ROW)[None, :]) & 1) != 0)
        size = mask
        if SCALE == SCALE_ROW:
            size = gl.where(there, size_smem.index(stage).load(by_key), 1.0)
        if HALF:
            scores = scores_of(
                keys.index(stage), ropes.index(stage), q_smem.index(zero), q_rope.index(zero),
                ROPE, mma,
            )  # fmt: skip
            values = read_values(keys.index(stage))
            # All that is still needed of the tile is in registers.
            mbarrier.arrive(free.index(stage), count=1)
        else:
            scores = _scores(
                keys.index(stage), ropes.index(stage), q_smem.index(zero), q_rope.index(zero),
                ROPE, mma,
            )  # fmt: skip
        scores, weighed = _weighed(scores, factor, mask, size, SCALE)
        # Relative to the highest score of earlier tiles, as long as none is much higher: then there
        # is nothing to scale.
        p = gl.where(mask, gl.exp2(scores - top[None, :]), 0.0)
        _store_weights(weights, p, size, ODD, SCALE, HALF)
        tops_smem.index(ODD).store(gl.max(gl.reshape(weighed, [4, BLOCK_N // 4, BLOCK_H]), 1))
        highest = gl.max(tops_smem.index(ODD).load(TOPS), 0)
        highest = gl.convert_layout(highest, by_head, assert_trivial=True)
        if gl.max(highest - top, 0) > HIGHER:
            new_top = gl.maximum(top, highest)
            shrunk = gl.exp2(top - new_top)
            top = new_top
            p = gl.where(mask, gl.exp2(scores - top[None, :]), 0.0)
            _store_weights(weights, p, size, ODD, SCALE, HALF)
            totals = totals * shrunk[None, :]
            acc0 = acc0 * shrunk[None, :]
            acc1 = acc1 * shrunk[None, :]
            acc2 = acc2 * shrunk[None, :]
            acc3 = acc3 * shrunk[None, :]
        totals = totals + p
        hopper.fence_async_shared()
        if HALF:
            acc0, acc1, acc2, acc3 = add_values(
                values, weights.index(2 * ODD), weights.index(2 * ODD + 1),
                acc0, acc1, acc2, acc3, mma,
            )  # fmt: skip
        else:
            acc0, acc1, acc2, acc3 = _add_values(
                keys.index(stage), weights.index(ODD), acc0, acc1, acc2, acc3
            )
            mbarrier.arrive(free.index(stage), count=1)

    total = gl.sum(totals, 0)
    # The buffer of the last odd tile: nothing is gathered into it any more.
    last = gl.maximum(tiles // 2 * 2 - 1, 1) % STAGES
    LINES: gl.constexpr = BLOCK_N * RANK // BLOCK_H // (4 if HALF else 2)
    half = keys.index(last)._reinterpret(gl.float32, [LINES, BLOCK_H], RESULT)
    if ODD == 1:
        half.slice(0, PART).store(acc0)
        half.slice(PART, PART).store(acc1)
        half.slice(2 * PART, PART).store(acc2)
        half.slice(3 * PART, PART).store(acc3)
        sums_smem.index(0).store(top)
        sums_smem.index(1).store(total)
        mbarrier.arrive(halved, count=1)
    else:
        mbarrier.wait(halved, 0)
        _finish(
            out, lse, cache_scale, half, sums_smem, at0, head0, head, top, total,
            acc0, acc1, acc2, acc3, HEADS, BLOCK_H, SCALE, HALF, SPLIT, mma,
        )  # fmt: skip


@gluon.jit
def _finish(
    out, lse, cache_scale, half, sums_smem, at0, head0, head, top, total,
    acc0, acc1, acc2, acc3,
    HEADS: gl.constexpr, BLOCK_H: gl.constexpr, SCALE: gl.constexpr, HALF: gl.constexpr,
    SPLIT: gl.constexpr, mma: gl.constexpr,
):  # fmt: skip
    """Join the even group's half with the odd one's and store the result."""
    by_head: gl.constexpr = gl.SliceLayout(0, mma)
    other_top = sums_smem.index(0).load(by_head)
    joint = gl.maximum(top, other_top)
    mine = gl.exp2(top - joint)
    other = gl.exp2(other_top - joint)
    total = total * mine + sums_smem.index(1).load(by_head) * other
    none = total == 0.0
    whole = gl.where(none, 1.0, total)
    log = gl.where(none, float("-inf"), joint + gl.log2(whole))
    if not SPLIT:
        log = log * LN2
    gl.store(lse + at0 + head, log, mask=head < HEADS)
    share = 1.0 / whole
    if SCALE == SCALE_TENSOR:
        share = share * gl.load(cache_scale)
    mine *= share
    other *= share
    _join(half.slice(0, PART), acc0, mine, other, mma)
    _join(half.slice(PART, PART), acc1, mine, other, mma)
    _join(half.slice(2 * PART, PART), acc2, mine, other, mma)
    _join(half.slice(3 * PART, PART), acc3, mine, other, mma)
    _store_result(out + at0 * RANK, half.slice(0, RANK), head0, HEADS, BLOCK_H, HALF)


@gluon.jit
def _join(half, acc, mine, other, mma: gl.constexpr):
    """Add this group's part of the result to the other one's, in its place."""
    half.store(acc * mine[None, :] + half.load(mma) * other[None, :])


@gluon.jit
def _store_result(out, result, head0, HEADS: gl.constexpr, BLOCK_H: gl.constexpr,
                  HALF: gl.constexpr):  # fmt: skip
    """Store a result [RANK, BLOCK_H], eight columns of a head side by side in each thread."""
    LINES: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [2, 2], [1, 0])
    lines = columns_in_order(result, BLOCK_H) if HALF else result.permute((1, 0)).load(LINES)
    lines = gl.convert_layout(lines, LINES, assert_trivial=True)
    head = head0 + gl.arange(0, BLOCK_H, layout=gl.SliceLayout(1, LINES))
    column = gl.arange(0, RANK, layout=gl.SliceLayout(0, LINES))
    place = out + head[:, None] * RANK + column[None, :]
    gl.store(place, lines.to(out.dtype.element_ty), mask=(head < HEADS)[:, None])


@gluon.jit(do_not_specialize=["slots", "empty", "splits"])
def hopper_few_heads(
    query, cache, indices, lengths, members, cache_scale,
    out, lse, scale2, topk, slots, empty, columns_per_split, splits,
    query_row, query_head, cache_row,
    HEADS: gl.constexpr, HEADS_PER_ROW: gl.constexpr, ROPE: gl.constexpr,
    BLOCK_H: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr,
    HAS_LENGTHS: gl.constexpr, PACKED: gl.constexpr, SCALE: gl.constexpr, HALF: gl.constexpr,
    SPLIT: gl.constexpr, DENSE: gl.constexpr,
):  # fmt: skip
    """As attention_kernels.partial_attention, for BF16 queries and a cache of BF16 or FP8."""
    if SPLIT:
        gdc_launch_dependents()
    if DENSE:
        cache_row = RANK + ROPE
        query_head = RANK + ROPE
    head0, split, row, begin, end = own_part(
        lengths, topk, columns_per_split, splits, HEADS, BLOCK_H, HAS_LENGTHS
    )

    element: gl.constexpr = gl.float16 if HALF else gl.bfloat16
    stored: gl.constexpr = gl.float8e4nv if HALF else gl.bfloat16
    q_smem = gl.allocate_shared_memory(element, [1, BLOCK_H, RANK], TILE)
    keys = gl.allocate_shared_memory(stored, [STAGES, BLOCK_N, RANK], RAW if HALF else TILE)
    if HALF:
        weights = gl.allocate_shared_memory(element, [4, BLOCK_H, BLOCK_N // 2], WEIGHTS)
    else:
        weights = gl.allocate_shared_memory(element, [2, BLOCK_H, BLOCK_N], TILE)
    sums_smem = gl.allocate_shared_memory(gl.float32, [2, BLOCK_H], LIST)
    tops_smem = gl.allocate_shared_memory(gl.float32, [2, 4, BLOCK_H], RESULT)
    q_rope = q_smem
    ropes = keys
    if ROPE:
        q_rope = gl.allocate_shared_memory(element, [1, BLOCK_H, ROPE], TILE)
        ropes = gl.allocate_shared_memory(
            stored, [STAGES, BLOCK_N, ROPE], RAW_ROPE if HALF else TILE
        )
    found_smem, member_smem = allocate_lists(indices, STAGES, BLOCK_N, PACKED)
    size_smem = found_smem
    if SCALE == SCALE_ROW:
        size_smem = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK_N], LIST)
    shrink_smem = found_smem
    if HALF:
        shrink_smem = gl.allocate_shared_memory(gl.float32, [BLOCK_H], LIST)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(q_ready, count=1 if HALF else 32 * WARPS)
    ready, free = allocate_barriers(STAGES)
    halved = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(halved, count=1)

    # In one expression: a tuple that gets a name loses its compile-time values.
    gl.warp_specialize(
        [
            (gather, (
                query, cache, indices, members, cache_scale, row, head0, begin, end, topk,
                slots, empty, query_row, query_head, cache_row, q_smem, q_rope, keys, ropes,
                found_smem, member_smem, size_smem, q_ready, ready, free,
                HEADS, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, SCALE, HALF,
            )),
            (_attend, (
                query, out, lse, cache_scale, row, (row * splits + split) * HEADS, head0,
                begin, end, slots, empty, scale2, query_row, query_head,
                q_smem, q_rope, keys, ropes, found_smem, member_smem, size_smem, shrink_smem,
                weights, sums_smem, tops_smem, q_ready, ready, free, halved,
                HEADS, HEADS_PER_ROW, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, SCALE, HALF,
                SPLIT, 0,
            )),
            (_attend, (
                query, out, lse, cache_scale, row, (row * splits + split) * HEADS, head0,
                begin, end, slots, empty, scale2, query_row, query_head,
                q_smem, q_rope, keys, ropes, found_smem, member_smem, size_smem, shrink_smem,
                weights, sums_smem, tops_smem, q_ready, ready, free, halved,
                HEADS, HEADS_PER_ROW, ROPE, BLOCK_H, BLOCK_N, STAGES, PACKED, SCALE, HALF,
                SPLIT, 1,
            )),
        ],
        [4, 4],
        [232 if HALF else 168, 232 if HALF else 168],
    )  # fmt: skip
