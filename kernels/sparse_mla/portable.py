"""Sparse MLA in plain PyTorch: the entry of the table for devices without Triton."""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_AT_ONCE = 64


def selected(
    indices: Tensor, slots: int, lengths: Tensor | None = None, empty_index: int = -1
) -> Tensor:
    """Indices int64 [T, N] with -1 for every column that is no key.

    That is outside 0 .. slots - 1, equal to `empty_index`, or at or behind the row's length.
    """
    found = indices.to(torch.int64)
    there = (found >= 0) & (found < slots) & (found != empty_index)
    if lengths is not None:
        there &= torch.arange(found.shape[1], device=found.device) < lengths.unsqueeze(1)
    return torch.where(there, found, -1)


def check_shapes(query: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor | None) -> None:
    """Raise ValueError where the shapes of a call disagree."""
    if query.ndim != 3 or cache.ndim != 2 or indices.ndim != 2:
        raise ValueError(
            "expected query [T, heads, width], cache [slots, width] and indices [T, topk], found "
            f"{tuple(query.shape)}, {tuple(cache.shape)} and {tuple(indices.shape)}"
        )
    if query.shape[2] != cache.shape[1]:
        raise ValueError(f"query is {query.shape[2]} wide and the cache {cache.shape[1]}")
    if indices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"indices are {indices.dtype}, expected int32 or int64")
    if len(indices) != len(query):
        raise ValueError(f"{len(query)} query rows and {len(indices)} rows of indices")
    if lengths is not None and lengths.shape != (len(query),):
        raise ValueError(f"{len(query)} query rows and lengths {tuple(lengths.shape)}")


def gather_mla(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    scale: float,
    *,
    kv_lora_rank: int = 512,
    cache_scale: Tensor | None = None,
    lengths: Tensor | None = None,
    empty_index: int = -1,
) -> tuple[Tensor, Tensor]:
    """Attention of query [T, heads, D] over rows of cache [slots, D] that indices [T, N] name.

    The first `kv_lora_rank` columns of a cache row are its value. `cache_scale` is one factor or
    [slots]. Returns out [T, heads, kv_lora_rank] in query's type and lse [T, heads] float32 in
    natural units; a row without keys gives 0 and -inf. Computed in float32.
    """
    check_shapes(query, cache, indices, lengths)
    found = selected(indices, len(cache), lengths, empty_index)
    out = query.new_empty(*query.shape[:2], kv_lora_rank)
    lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
    for at in range(0, len(query), ROWS_AT_ONCE):
        rows = slice(at, at + ROWS_AT_ONCE)
        part, lse[rows] = _attend(query[rows], cache, found[rows], scale, cache_scale, kv_lora_rank)
        out[rows] = part.to(query.dtype)
    return out, lse


def _attend(
    query: Tensor,
    cache: Tensor,
    found: Tensor,
    scale: float,
    cache_scale: Tensor | None,
    kv_lora_rank: int,
) -> tuple[Tensor, Tensor]:
    there = found >= 0
    keys = cache[found.clamp(min=0)].float()
    if cache_scale is not None:
        per_tensor = cache_scale.numel() == 1
        factor = cache_scale.reshape(1, 1) if per_tensor else cache_scale[found.clamp(min=0)]
        keys = keys * factor.float().unsqueeze(-1)
    # Selected away, not multiplied away: what lies in a slot that no row names may be NaN.
    keys = torch.where(there.unsqueeze(-1), keys, 0.0)
    scores = torch.matmul(query.float(), keys.transpose(1, 2)) * scale
    scores = scores.masked_fill(~there.unsqueeze(1), float("-inf"))
    lse = scores.logsumexp(-1)
    empty = torch.isneginf(lse)
    share = (scores - torch.where(empty, 0.0, lse).unsqueeze(-1)).exp()
    return torch.matmul(share, keys[..., :kv_lora_rank]), lse
