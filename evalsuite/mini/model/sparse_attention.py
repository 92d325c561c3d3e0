"""DSA layers: rope-free MLA in absorbed form over the keys that the indexer selects."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.caches import ZERO_SLOT, SparseCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model import indexer, kernels
from evalsuite.mini.model.norms import rms_norm
from evalsuite.mini.weights import SparseWeights

# Rows gathered at once: their keys stay in a CPU's cache, and a GPU's memory stays bounded.
ROWS_AT_ONCE = {"cpu": 16, "cuda": 4096}


class Attend(Protocol):
    """Attention of absorbed queries over selected rows of the latent cache."""

    def __call__(self, query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
        """query [T, heads, C], latent [slots, C], slots [T, N]; returns [T, heads, C]."""


def sparse_attention(
    x: Tensor,
    weights: SparseWeights,
    cache: SparseCache,
    meta: StepMetadata,
    block_size: int,
    config: MiniConfig,
    attend: Attend,
    shared_slots: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One DSA sublayer over flat rows x [T, H]; returns its output and the selected slots.

    With `shared_slots` [T, N] the indexer is left out, its caches too, and these keys are used.
    """
    heads, dim = config.index_n_heads, config.index_head_dim
    parts = [config.q_lora_rank, config.kv_lora_rank, dim, dim, heads]
    q_low, kv, key, gate, head_weights = F.linear(x, weights.in_proj).split(parts, -1)
    latent = rms_norm(kv, weights.kv_norm, config.rms_norm_eps)
    cache.latent[meta.slot_mapping] = latent
    resid = rms_norm(q_low, weights.q_norm, config.rms_norm_eps)
    nope = config.num_attention_heads * config.qk_nope_head_dim
    query, index_query = F.linear(resid, weights.up).split([nope, heads * dim], -1)
    if shared_slots is None:
        entries = indexer.index_entries(key, gate, weights)
        indexer.update_pools(entries, cache, weights, meta, config)
        index_query = index_query.unflatten(-1, (heads, dim))
        shared_slots = indexer.select_keys(
            index_query, head_weights, cache, meta, block_size, config
        )
    query = query.unflatten(-1, (config.num_attention_heads, config.qk_nope_head_dim))
    absorbed = torch.matmul(query.transpose(0, 1), weights.key_up).transpose(0, 1)
    with kernels.rows(meta.row_kinds):
        mixed = attend(absorbed, cache.latent, shared_slots, config.softmax_scale)
    value = torch.matmul(mixed.transpose(0, 1), weights.value_up).transpose(0, 1)
    return F.linear(value.flatten(1), weights.o_proj), shared_slots


def gather_attention(query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
    """Attention by gathering the selected rows, in plain PyTorch.

    ZERO_SLOT stands for "no key"; a row without any key gives 0, as that slot holds zeros.
    Scores and softmax are float32.
    """
    step = ROWS_AT_ONCE[query.device.type]
    if query.shape[0] <= step:
        return _gather(query, latent, slots, scale)
    return torch.cat(
        [
            _gather(query[i : i + step], latent, slots[i : i + step], scale)
            for i in range(0, query.shape[0], step)
        ]
    )


def _gather(query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
    # index_select copies whole rows, and keys on the left suit a CPU's matrix product: measured
    # four times and twice as fast there as indexing and query @ keys^T.
    rows = latent.index_select(0, slots.flatten()).view(*slots.shape, -1)
    scores = torch.matmul(rows, query.transpose(1, 2)).transpose(1, 2).float() * scale
    # A finite fill keeps a row without keys free of NaN.
    scores = scores.masked_fill((slots == ZERO_SLOT).unsqueeze(1), -1e30)
    return torch.matmul(scores.softmax(-1).to(query.dtype), rows)
