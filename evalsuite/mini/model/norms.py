"""Normalisations. All are computed in float32 and rounded once to the input's type."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension.

    The normalised value is rounded to `x.dtype` before the weight is applied, as in the
    published model. Shapes: x [..., D], weight [D]; returns [..., D] in x's type.
    """
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
