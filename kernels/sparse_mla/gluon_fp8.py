"""FP8 keys as register operands of a wgmma, for gluon_few_heads.py.

An FP8 tile stays as it is in shared memory. Both products read it there into registers, 16 bytes at
a time and without bank conflicts, and open it to float16, in which e4m3 is exact: opening it on the
way into shared memory instead took twice the traffic there, which bound the kernel. What a thread
reads at once is not what a wgmma wants from it side by side. So the products run over permuted
dimensions: the query's columns and the weights' keys are stored in the order in which the operands
have them, and the result's columns come out in one.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import hopper

from sparse_mla.attention_kernels import OPEN

# A row of 128 bytes is swapped in pieces of 32 bytes by its key modulo 4.
RAW = gl.constexpr(gl.SwizzledSharedLayout(32, 1, 4, [1, 0]))
RAW_WORDS = gl.constexpr(gl.SwizzledSharedLayout(8, 1, 4, [1, 0]))
RAW_ROPE = gl.constexpr(gl.SwizzledSharedLayout(16, 1, 1, [1, 0]))
# Weights [H, 32] of half of a tile's keys.
WEIGHTS = gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, rank=2))
# Columns that one product of scores takes, and columns of the result that one of values gives.
PART = gl.constexpr(128)

# Keys [64, PART] for scores. Bits of a column, low to high: value of a pair, pair, word, low bit of
# the thread of four, half, high bit of the thread.
ROWS = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 8], [0, 32], [8, 0]],
        [[0, 16], [0, 64], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 128],
    )
)
ROPE_ROWS = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [0, 8], [8, 0]],
        [[0, 16], [0, 32], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]],
        [],
        [64, 64],
    )
)
# Words of four columns [64, 128] for values. Bits of a key, low to high: thread of four, key of a
# pair, half, pair, product.
COLUMNS = gl.constexpr(
    gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [4, 0], [8, 0], [16, 0], [32, 0]],
        [[1, 0], [2, 0], [0, 4], [0, 8], [0, 16]],
        [[0, 32], [0, 64]],
        [],
        [64, 128],
    )
)
# Words of two keys: eight values, key by key for each of four columns.
OPEN_PAIRS = gl.constexpr(
    "{ .reg .b32 front, back, pair; .reg .b16 low, high; "
    "prmt.b32 front, $8, $9, 0x5140; prmt.b32 back, $8, $9, 0x7362; "
    "mov.b32 {low, high}, front; "
    "cvt.rn.f16x2.e4m3x2 pair, low; mov.b32 {$0, $1}, pair; "
    "cvt.rn.f16x2.e4m3x2 pair, high; mov.b32 {$2, $3}, pair; "
    "mov.b32 {low, high}, back; "
    "cvt.rn.f16x2.e4m3x2 pair, low; mov.b32 {$4, $5}, pair; "
    "cvt.rn.f16x2.e4m3x2 pair, high; mov.b32 {$6, $7}, pair; }"
)


@gluon.jit
def in_order_of_scores(query):
    """A query [H, columns] with its columns in the order in which scores_of runs over them."""
    H: gl.constexpr = query.shape[0]
    WIDTH: gl.constexpr = query.shape[1]
    if WIDTH == 64:
        bits = gl.permute(gl.reshape(query, [H, 4, 4, 2, 2]), (0, 2, 3, 1, 4))
    else:
        bits = gl.reshape(query, [H, WIDTH // PART, 2, 2, 2, 4, 2, 2])
        bits = gl.permute(bits, (0, 1, 3, 5, 6, 2, 4, 7))
    return gl.reshape(bits, [H, WIDTH])


@gluon.jit
def in_order_of_values(weights):
    """Weights [64, H] as those of both halves of the keys [32, H], in the order of the operands."""
    H: gl.constexpr = weights.shape[1]
    bits = gl.permute(gl.reshape(weights, [4, 2, 2, 4, H]), (0, 3, 2, 4, 1))
    first, second = gl.split(bits)
    return gl.reshape(first, [32, H]), gl.reshape(second, [32, H])


@gluon.jit
def columns_in_order(result, H: gl.constexpr):
    """A result [512, H] in shared memory as [H, 512], its columns in order again."""
    # Bits of a row, low to high: thread of eight, column of a pair, warp, pair, part.
    LAYOUT: gl.constexpr = gl.DistributedLinearLayout(
        [[8, 0], [64, 0], [128, 0], [0, 2], [0, 4], [0, 8]],
        [[256, 0], [1, 0], [2, 0], [4, 0], [16, 0]],
        [[32, 0], [0, 1]],
        [],
        [512, H],
    )
    bits = gl.permute(gl.reshape(result.load(LAYOUT), [4, 2, 4, 2, 8, H]), (5, 2, 4, 0, 1, 3))
    return gl.reshape(bits, [H, 512])


@gluon.jit
def _opened(raw):
    return gl.inline_asm_elementwise(OPEN, "=r,=r,r", [raw], dtype=gl.float16, is_pure=True, pack=4)


@gluon.jit
def _score_operand(keys, part: gl.constexpr, dot: gl.constexpr):
    raw = keys.slice(part * PART, PART, dim=1).load(ROWS)
    bits = gl.permute(gl.reshape(_opened(raw), [64, 2, 2, 2, 4, 2, 2]), (0, 2, 4, 5, 1, 3, 6))
    return gl.convert_layout(gl.reshape(bits, [64, PART]), dot, assert_trivial=True)


@gluon.jit
def _rope_operand(rope, dot: gl.constexpr):
    bits = gl.reshape(_opened(rope.load(ROPE_ROWS)), [64, 4, 4, 2, 2])
    bits = gl.permute(bits, (0, 2, 3, 1, 4))
    return gl.convert_layout(gl.reshape(bits, [64, 64]), dot, assert_trivial=True)


@gluon.jit
def scores_of(keys, rope, q, q_rope, ROPE: gl.constexpr, mma: gl.constexpr):
    """The products [64, H] of FP8 keys with a query that lies in the order of scores."""
    dot: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    H: gl.constexpr = q.shape[0]
    total = gl.zeros([64, H], gl.float32, layout=mma)
    # An operand is opened while the product before it runs. It must live until its product is done.
    first = _score_operand(keys, 0, dot)
    total = hopper.warpgroup_mma(
        first, q.slice(0, PART, dim=1).permute((1, 0)), total, use_acc=False, is_async=True
    )
    second = _score_operand(keys, 1, dot)
    total = hopper.warpgroup_mma(
        second, q.slice(PART, PART, dim=1).permute((1, 0)), total, is_async=True
    )
    total, first = hopper.warpgroup_mma_wait(1, deps=[total, first])
    third = _score_operand(keys, 2, dot)
    total = hopper.warpgroup_mma(
        third, q.slice(2 * PART, PART, dim=1).permute((1, 0)), total, is_async=True
    )
    total, second = hopper.warpgroup_mma_wait(1, deps=[total, second])
    fourth = _score_operand(keys, 3, dot)
    total = hopper.warpgroup_mma(
        fourth, q.slice(3 * PART, PART, dim=1).permute((1, 0)), total, is_async=True
    )
    total, third = hopper.warpgroup_mma_wait(1, deps=[total, third])
    if ROPE:
        last = _rope_operand(rope, dot)
        total = hopper.warpgroup_mma(last, q_rope.permute((1, 0)), total, is_async=True)
        total, fourth, last = hopper.warpgroup_mma_wait(0, deps=[total, fourth, last])
    else:
        total, fourth = hopper.warpgroup_mma_wait(0, deps=[total, fourth])
    return total


@gluon.jit
def read_values(keys):
    """The words of FP8 keys: for each half of the keys even and odd ones, in four parts each."""
    words = keys._reinterpret(gl.int32, [64, 128], RAW_WORDS).load(COLUMNS)
    first, second = gl.split(gl.permute(gl.reshape(words, [4, 2, 8, 128]), (0, 2, 3, 1)))
    return _pairs(first), _pairs(second)


@gluon.jit
def _pairs(words):
    even, odd = gl.split(gl.permute(gl.reshape(words, [4, 2, 4, 128]), (0, 2, 3, 1)))
    return _parts(even), _parts(odd)


@gluon.jit
def _parts(words):
    low, high = gl.split(gl.reshape(words, [16, 32, 2, 2]))
    first, third = gl.split(low)
    second, fourth = gl.split(high)
    return first, second, third, fourth


@gluon.jit
def _value_operand(pairs, part: gl.constexpr, dot: gl.constexpr):
    a0, b0, a1, b1, a2, b2, a3, b3 = gl.inline_asm_elementwise(
        OPEN_PAIRS, "=h,=h,=h,=h,=h,=h,=h,=h,r,r", [pairs[0][part], pairs[1][part]],
        dtype=(gl.float16, gl.float16, gl.float16, gl.float16,
               gl.float16, gl.float16, gl.float16, gl.float16),
        is_pure=True, pack=1,
    )  # fmt: skip
    front = gl.join(gl.join(a0, b0), gl.join(a1, b1))
    back = gl.join(gl.join(a2, b2), gl.join(a3, b3))
    # Product and pair, thread of four, warp, thread of eight, key and column of a pair, pair.
    bits = gl.reshape(gl.join(front, back), [4, 4, 4, 8, 2, 2, 2])
    bits = gl.permute(bits, (6, 2, 5, 3, 0, 1, 4))
    return gl.convert_layout(gl.reshape(bits, [PART, 32]), dot, assert_trivial=True)


@gluon.jit
def add_values(values, first_weights, second_weights, acc0, acc1, acc2, acc3, mma: gl.constexpr):
    """Add weighted values to the four parts [PART, H] of the result.

    values: as read_values has them; weights [H, 32] of both halves of the keys in shared memory.
    """
    acc0, acc1, acc2, acc3 = _add_half(values[0], first_weights, acc0, acc1, acc2, acc3, mma)
    return _add_half(values[1], second_weights, acc0, acc1, acc2, acc3, mma)


@gluon.jit
def _add_half(pairs, half, acc0, acc1, acc2, acc3, mma: gl.constexpr):
    dot: gl.constexpr = gl.DotOperandLayout(0, mma, 2)
    weights = half.permute((1, 0))
    first = _value_operand(pairs, 0, dot)
    acc0 = hopper.warpgroup_mma(first, weights, acc0, is_async=True)
    second = _value_operand(pairs, 1, dot)
    acc1 = hopper.warpgroup_mma(second, weights, acc1, is_async=True)
    acc0, first = hopper.warpgroup_mma_wait(1, deps=[acc0, first])
    third = _value_operand(pairs, 2, dot)
    acc2 = hopper.warpgroup_mma(third, weights, acc2, is_async=True)
    acc1, second = hopper.warpgroup_mma_wait(1, deps=[acc1, second])
    fourth = _value_operand(pairs, 3, dot)
    acc3 = hopper.warpgroup_mma(fourth, weights, acc3, is_async=True)
    acc2, third = hopper.warpgroup_mma_wait(1, deps=[acc2, third])
    acc3, fourth = hopper.warpgroup_mma_wait(0, deps=[acc3, fourth])
    return acc0, acc1, acc2, acc3
