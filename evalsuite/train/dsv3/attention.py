"""Multi-head latent attention over whole sequences, and over one draft chain behind each row."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Heads(NamedTuple):
    """query, key [B, heads, T, qk_head_dim] with rope applied, value [B, heads, T, v_head_dim]."""

    query: Tensor
    key: Tensor
    value: Tensor


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Rotary embedding of x [..., T, D] at positions [T], neighbouring channels as pairs.

    Pair i turns by position * theta^(-2i / D), computed in float32 (Su et al., 2021).
    """
    width = x.shape[-1]
    rates = theta ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width)
    angle = positions.float()[:, None] * rates
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cosine, sine = angle.cos(), angle.sin()
    turned = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], -1)
    return turned.flatten(-2).to(x.dtype)


def causal(heads: Heads, scale: float) -> Tensor:
    """Causal attention; returns [B, heads, T, v_head_dim]."""
    width = heads.value.shape[-1]
    # Equal widths let a GPU use its fused attention.
    value = F.pad(heads.value, (0, heads.query.shape[-1] - width))
    out = F.scaled_dot_product_attention(heads.query, heads.key, value, is_causal=True, scale=scale)
    return out[..., :width]


def chained(stored: Heads, chain: list[Heads], rows: Tensor, scale: float) -> Tensor:
    """Attention of the newest link of a chain of drafts behind each of the positions rows [R].

    `stored` holds the keys of step 0 for the whole sequence, of which the row at position p sees
    those up to p; `chain` the later steps' heads at the R rows, of which it sees its own.
    """
    query = chain[-1].query
    scores = (query @ stored.key.transpose(-1, -2)).float() * scale
    ahead = torch.arange(scores.shape[-1], device=rows.device) > rows[:, None]
    scores = scores.masked_fill(ahead, float("-inf"))
    own = torch.stack([(query * link.key).float().sum(-1) * scale for link in chain], -1)
    share = torch.cat([scores, own], -1).softmax(-1).to(query.dtype)
    behind, own_share = share.split([scores.shape[-1], len(chain)], -1)
    values = torch.stack([link.value for link in chain], -2)
    mixed: Tensor = behind @ stored.value + (own_share.unsqueeze(-1) * values).sum(-2)
    return mixed
