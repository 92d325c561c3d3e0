"""The mixture of experts: sigmoid scores, choice by groups, a bias in the choice only."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.train.dsv3.config import Dsv3Config


def route(x: Tensor, router: Tensor, bias: Tensor, config: Dsv3Config) -> Tensor:
    """Weight of every expert for every row of x [..., H], zero where not chosen: [..., E] float32.

    A group counts by the sum of its two best biased scores; experts are chosen within the best
    groups. Weights are the unbiased scores of the chosen (DeepSeek-V3 technical report, 2.1.2).
    """
    scores = F.linear(x.float(), router.float()).sigmoid()
    with torch.no_grad():
        ranked = scores + bias
        grouped = ranked.unflatten(-1, (config.n_group, -1))
        best = grouped.topk(2, -1).values.sum(-1).topk(config.topk_group, -1).indices
        open_groups = torch.zeros_like(grouped[..., 0]).scatter(-1, best, 1.0) > 0
        ranked = grouped.masked_fill(~open_groups.unsqueeze(-1), float("-inf")).flatten(-2)
        chosen = ranked.topk(config.num_experts_per_tok, -1).indices
        mask = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
    kept = scores * mask
    if config.norm_topk_prob:
        kept = kept / (kept.sum(-1, keepdim=True) + 1e-20)
    return kept * config.routed_scaling_factor


def experts(x: Tensor, share: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """Weighted sum of all experts; gate, up [E * I, H] and down [H, E * I] lie side by side.

    Unchosen experts are computed and weighted by zero: shapes do not depend on the data, which a
    captured graph needs.
    """
    inner = F.silu(F.linear(x, gate)) * F.linear(x, up)
    weighted = inner.unflatten(-1, (share.shape[-1], -1)) * share.unsqueeze(-1).to(x.dtype)
    return F.linear(weighted.flatten(-2), down)
