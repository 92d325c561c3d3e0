"""Sparse MLA in float64, written for reading: what every kernel is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_mla.portable import selected


def attention(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    scale: float,
    *,
    kv_lora_rank: int,
    cache_scale: Tensor | None = None,
    lengths: Tensor | None = None,
    empty_index: int = -1,
) -> tuple[Tensor, Tensor]:
    """out [T, heads, kv_lora_rank] and lse [T, heads], both float64, one row at a time.

    query [T, heads, D]; cache [slots, D], whose first `kv_lora_rank` columns are the value, times
    `cache_scale` (one factor or [slots]); indices [T, N]. A column is no key where it is outside
    0 .. slots - 1, equal to `empty_index`, or at or behind the row's length; a slot that a row
    names twice counts twice. A row without keys gives 0 and -inf.
    """
    out = torch.zeros(*query.shape[:2], kv_lora_rank, dtype=torch.float64, device=query.device)
    lse = torch.full(query.shape[:2], float("-inf"), dtype=torch.float64, device=query.device)
    for row, columns in enumerate(selected(indices, len(cache), lengths, empty_index)):
        slots = columns[columns >= 0]
        if len(slots):
            keys = cache[slots].double() * _factors(cache_scale, slots)
            scores = query[row].double() @ keys.T * scale
            lse[row] = scores.logsumexp(-1)
            out[row] = scores.softmax(-1) @ keys[:, :kv_lora_rank]
    return out, lse


def _factors(cache_scale: Tensor | None, slots: Tensor) -> Tensor | float:
    if cache_scale is None:
        return 1.0
    if cache_scale.numel() == 1:
        return cache_scale.reshape(()).double()
    return cache_scale[slots].double().unsqueeze(-1)


def merge(outs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
    """Join attention over disjoint sets of keys: outs [S, ..., C] and lses [S, ...], float64.

    Each part counts with exp(lse); parts without keys (lse -inf) count nothing whatever their
    `outs` hold. FlashDecoding's merge (arXiv 2311.01282, section 3).
    """
    lse = lses.double().logsumexp(0)
    empty = torch.isneginf(lse)
    share = (lses.double() - torch.where(empty, 0.0, lse)).exp().unsqueeze(-1)
    parts = torch.where(share > 0, share * outs.double(), 0.0)
    return parts.sum(0), lse
