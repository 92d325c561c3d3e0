"""Kernels as a user would hand them in: right, wrong in several ways, and limited."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_mla.capability import Capability
from sparse_mla.portable import gather_mla
from sparse_mla.table import Entry

NOT_A_KERNEL = 7


def attention(query: Tensor, cache: Tensor, indices: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The ten lines of the documentation."""
    there = (indices >= 0) & (indices < len(cache))
    keys = torch.where(there[..., None], cache[indices.clamp(0, len(cache) - 1)].float(), 0.0)
    scores = (query.float() @ keys.mT * scale).masked_fill(~there[:, None], -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - torch.where(lse.isneginf(), 0.0, lse)[..., None]).exp()
    return (weights @ keys[..., :512]).to(query.dtype), lse


def complete(
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
    """A kernel that takes every keyword."""
    return gather_mla(
        query, cache, indices, scale, kv_lora_rank=kv_lora_rank, cache_scale=cache_scale,
        lengths=lengths, empty_index=empty_index,
    )  # fmt: skip


def first_row_of_two(
    query: Tensor, cache: Tensor, indices: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Rows 1, 3, 5 … attend to the keys of the row before: right for a single row."""
    shared = indices.clone()
    shared[1::2] = indices[: len(indices) // 2 * 2 : 2]
    return attention(query, cache, shared, scale)


def leaking(query: Tensor, cache: Tensor, indices: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Columns without a key are multiplied away, not selected away."""
    there = (indices >= 0) & (indices < len(cache))
    out, lse = attention(query, cache, indices, scale)
    unread = cache[indices.clamp(0, len(cache) - 1), :512].float() * (~there)[..., None] * 0
    return out + unread.sum(1, keepdim=True).to(out.dtype), lse


def crashing(query: Tensor, cache: Tensor, indices: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """A kernel that is not ready."""
    raise RuntimeError("illegal memory access")


DECODE_ONLY = Entry(
    "decode_only",
    (
        Capability(
            frozenset({"cpu", "interpreter"}),
            frozenset({"float32"}),
            frozenset({512}),
            frozenset({0}),
            range(1, 65),
            frozenset({"decode"}),
        ),
    ),
    lambda geometry: gather_mla,
)
