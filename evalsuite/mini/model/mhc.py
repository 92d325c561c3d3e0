"""Manifold-constrained hyper-connections: the residual is `hc_mult` streams, mixed at each site.

Per site the streams collapse into one vector (the sublayer's input); afterwards the output is
spread over the streams, which are mixed by a nearly doubly stochastic matrix (Sinkhorn-Knopp).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.config import MiniConfig
from evalsuite.mini.model.norms import can_fuse


class SiteWeights(NamedTuple):
    """fn [(2+M)M, M*H], base [(2+M)M], scale [3], with M = hc_mult and H = hidden_size."""

    fn: Tensor
    base: Tensor
    scale: Tensor


class Mixing(NamedTuple):
    """What a site decides from the streams: post [..., M] and comb [..., M, M], both float32."""

    post: Tensor
    comb: Tensor


def collapse(streams: Tensor, site: SiteWeights, config: MiniConfig) -> tuple[Tensor, Mixing]:
    """Collapse streams [..., M, H] into the sublayer's input [..., H]."""
    pre, mixing = _mixing(streams.flatten(-2), site, config)
    return (pre.unsqueeze(-1) * streams).sum(-2).to(streams.dtype), mixing


def _mixing(flat: Tensor, site: SiteWeights, config: MiniConfig) -> tuple[Tensor, Mixing]:
    """Weights of the streams on the way in, [..., M], and the mixing behind the sublayer."""
    mult, eps = config.hc_mult, config.hc_eps
    # The fused form lays the streams out in blocks, which come in powers of two.
    if can_fuse(flat) and mult & (mult - 1) == 0:
        from evalsuite.mini.model import fused

        normed = fused.rms_norm(flat, None, config.rms_norm_eps, torch.float32)
        mix = F.linear(normed, site.fn.float())
        steps = config.hc_sinkhorn_iters
        pre, post, comb = fused.mixing(mix, site.base, site.scale, mult, steps, eps)
        return pre, Mixing(post, comb)
    flat = flat.float()
    flat = flat * torch.rsqrt(flat.square().mean(-1, keepdim=True) + config.rms_norm_eps)
    mix = F.linear(flat, site.fn.float())
    pre_w, post_w, comb_w = mix.split([mult, mult, mult * mult], dim=-1)
    pre_b, post_b, comb_b = site.base.split([mult, mult, mult * mult])
    pre = torch.sigmoid(pre_w * site.scale[0] + pre_b) + eps
    post = 2.0 * torch.sigmoid(post_w * site.scale[1] + post_b)
    logits = (comb_w * site.scale[2] + comb_b).unflatten(-1, (mult, mult))
    comb = sinkhorn(torch.softmax(logits, dim=-1) + eps, config.hc_sinkhorn_iters, eps)
    return pre, Mixing(post, comb)


def sinkhorn(matrix: Tensor, iterations: int, eps: float) -> Tensor:
    """Normalise columns, then (iterations - 1) times rows and columns, of [..., M, M]."""
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    return matrix


def expand(output: Tensor, streams: Tensor, mixing: Mixing) -> Tensor:
    """Spread a sublayer's output [..., H] over the mixed streams; returns [..., M, H]."""
    dtype = streams.dtype
    mixed = torch.matmul(mixing.comb.to(dtype).transpose(-1, -2), streams)
    return mixing.post.to(dtype).unsqueeze(-1) * output.unsqueeze(-2) + mixed
