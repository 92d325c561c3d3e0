# mypy: disable-error-code="no-untyped-def,untyped-decorator"
"""Small Triton kernels that replace runs of tiny operators on a GPU: mHC mixing and RMS norm.

A decode step of the miniature is some thousand launches, most of them on a few kilobytes: eager it
is bound by launching, and a captured graph by the gaps between. `mhc` and `norms` hold the formulas
and stay the only path on a CPU and while training; these compute the same, all in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 16


@triton.jit(do_not_specialize=["rows"])
def _mixing_kernel(
    mix,
    base,
    scale,
    pre_out,
    post_out,
    comb_out,
    rows,
    eps,
    MULT: tl.constexpr,
    ITERATIONS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = row < rows
    one = tl.arange(0, MULT)
    width = (2 + MULT) * MULT
    at = row[:, None] * width + one[None, :]
    pre = tl.load(mix + at, mask=here[:, None], other=0.0) * tl.load(scale)
    pre = tl.sigmoid(pre + tl.load(base + one)[None, :]) + eps
    tl.store(pre_out + row[:, None] * MULT + one[None, :], pre, mask=here[:, None])
    post = tl.load(mix + at + MULT, mask=here[:, None], other=0.0) * tl.load(scale + 1)
    post = 2.0 * tl.sigmoid(post + tl.load(base + MULT + one)[None, :])
    tl.store(post_out + row[:, None] * MULT + one[None, :], post, mask=here[:, None])
    cell = one[:, None] * MULT + one[None, :]
    here3 = here[:, None, None]
    comb_at = row[:, None, None] * width + 2 * MULT + cell[None, :, :]
    comb = tl.load(mix + comb_at, mask=here3, other=0.0) * tl.load(scale + 2)
    comb += tl.load(base + 2 * MULT + cell)[None, :, :]
    comb = tl.exp(comb - tl.max(comb, 2)[:, :, None])
    comb = comb / tl.sum(comb, 2)[:, :, None] + eps
    comb = comb / (tl.sum(comb, 1)[:, None, :] + eps)
    for _ in tl.static_range(ITERATIONS - 1):
        comb = comb / (tl.sum(comb, 2)[:, :, None] + eps)
        comb = comb / (tl.sum(comb, 1)[:, None, :] + eps)
    out_at = row[:, None, None] * (MULT * MULT) + cell[None, :, :]
    tl.store(comb_out + out_at, comb, mask=here3)


def mixing(
    mix: Tensor, base: Tensor, scale: Tensor, mult: int, iterations: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """pre [..., M], post [..., M] and comb [..., M, M] of mix [..., (2+M)M], all float32.

    M must be a power of two.
    """
    lead = mix.shape[:-1]
    rows = mix.numel() // mix.shape[-1]
    pre, post = mix.new_empty(*lead, mult), mix.new_empty(*lead, mult)
    comb = mix.new_empty(*lead, mult, mult)
    if rows == 0:
        return pre, post, comb
    _mixing_kernel[(triton.cdiv(rows, ROWS),)](
        mix.contiguous(), base, scale, pre, post, comb, rows, eps, mult, iterations, ROWS,
        num_warps=1,
    )  # fmt: skip
    return pre, post, comb


@triton.jit(do_not_specialize=["stride"])
def _rms_norm_kernel(
    x, weight, out, stride, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr, WEIGHTED: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < WIDTH
    value = tl.load(x + row * stride + at, mask=inside, other=0.0).to(tl.float32)
    scaled = value * tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    scaled = scaled.to(out.dtype.element_ty)
    if WEIGHTED:
        wide = scaled.to(tl.float32) * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
        scaled = wide.to(out.dtype.element_ty)
    tl.store(out + row * WIDTH + at, scaled, mask=inside)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, dtype: torch.dtype) -> Tensor:
    """Root-mean-square norm of x [..., D] into `dtype`; `weight` [D] is applied after rounding."""
    width = x.shape[-1]
    flat = x.reshape(-1, width)
    if flat.stride(-1) != 1:
        flat = flat.contiguous()
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    if flat.shape[0] == 0:
        return out
    _rms_norm_kernel[(flat.shape[0],)](
        flat, out if weight is None else weight, out, flat.stride(0), eps, width,
        triton.next_power_of_2(width), weight is not None, num_warps=1 if width <= 512 else 4,
    )  # fmt: skip
    return out
