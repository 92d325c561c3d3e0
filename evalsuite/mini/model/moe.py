"""Feed-forward sublayers: clamped SwiGLU, and a mixture of experts with sigmoid scores.

All experts are computed for all rows and the unchosen ones weighted by zero. At this size that
costs less than gathering rows by expert, and its shapes do not depend on the data, which a
captured graph needs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.config import MiniConfig


class SwigluWeights(NamedTuple):
    """gate_up [2I, H] (gate rows first), down [H, I]."""

    gate_up: Tensor
    down: Tensor


class MoeWeights(NamedTuple):
    """router [E, H], bias [E] float32, gate_up [E, 2I, H], down [E, H, I], shared or None."""

    router: Tensor
    bias: Tensor
    gate_up: Tensor
    down: Tensor
    shared: SwigluWeights | None


def swiglu(x: Tensor, weights: SwigluWeights, limit: float) -> Tensor:
    """Clamped SwiGLU of x [..., H]."""
    return F.linear(_activate(F.linear(x, weights.gate_up), limit), weights.down)


def _activate(gate_up: Tensor, limit: float) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate.clamp(max=limit)) * up.clamp(min=-limit, max=limit)


def route(x: Tensor, weights: MoeWeights, config: MiniConfig) -> Tensor:
    """Weight of every expert for every row, zero where not chosen: [T, E] float32.

    The bias takes part in the choice only; weights are the unbiased sigmoid scores of the chosen.
    """
    scores = F.linear(x.float(), weights.router.float()).sigmoid()
    chosen = (scores + weights.bias).topk(config.num_experts_per_tok, dim=-1).indices
    mask = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
    kept = scores * mask
    if config.norm_topk_prob:
        kept = kept / (kept.sum(-1, keepdim=True) + 1e-20)
    return kept * config.routed_scaling_factor


def moe(x: Tensor, weights: MoeWeights, config: MiniConfig) -> Tensor:
    """Mixture of experts over rows x [T, H]; returns [T, H] in x's type."""
    share = route(x, weights, config)
    inner = torch.matmul(x, weights.gate_up.transpose(1, 2))
    inner = _activate(inner, config.swiglu_limit)
    outer = torch.matmul(inner, weights.down.transpose(1, 2))
    routed = (outer * share.t().unsqueeze(-1)).sum(0).to(x.dtype)
    if weights.shared is None:
        return routed
    return routed + swiglu(x, weights.shared, config.swiglu_limit)
