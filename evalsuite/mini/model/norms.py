"""Normalisations. All are computed in float32 and rounded once to the input's type."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def can_fuse(x: Tensor) -> bool:
    """Whether the Triton forms in `fused` stand in: on a GPU, and where no gradient is wanted."""
    return x.is_cuda and not torch.is_grad_enabled() and _has_triton()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension.

    The normalised value is rounded to `x.dtype` before the weight is applied, as in the
    published model. Shapes: x [..., D], weight [D]; returns [..., D] in x's type.
    """
    if can_fuse(x):
        from evalsuite.mini.model import fused

        return fused.rms_norm(x, weight, eps, x.dtype)
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return scaled.to(x.dtype) * weight


def gated_rms_norm(
    x: Tensor, gate: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
) -> Tensor:
    """RMS norm of x [..., D], times sigmoid(gate) [..., D], all in float32, rounded to `dtype`."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (scaled * weight.float() * torch.sigmoid(gate.float())).to(dtype)


def l2_norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / sqrt(sum(x^2) + eps) over the last dimension (flash-linear-attention's form)."""
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + eps)
