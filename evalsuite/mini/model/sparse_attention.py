"""DSA layers: rope-free MLA in absorbed form over the keys that the indexer selects."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.caches import SparseCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model import indexer, kernels
from evalsuite.mini.model.norms import rms_norm
from evalsuite.mini.model.sparse_ops import SparseOps
from evalsuite.mini.weights import SparseWeights


def sparse_attention(
    x: Tensor,
    weights: SparseWeights,
    cache: SparseCache,
    meta: StepMetadata,
    block_size: int,
    config: MiniConfig,
    ops: SparseOps,
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
        ops.update_pools(entries, cache, weights, meta, config)
        index_query = index_query.unflatten(-1, (heads, dim))
        shared_slots = ops.select_keys(index_query, head_weights, cache, meta, block_size, config)
    query = query.unflatten(-1, (config.num_attention_heads, config.qk_nope_head_dim))
    absorbed = torch.matmul(query.transpose(0, 1), weights.key_up).transpose(0, 1)
    with kernels.rows(meta.row_kinds):
        mixed = ops.attend(absorbed, cache.latent, shared_slots, config.softmax_scale)
    value = torch.matmul(mixed.transpose(0, 1), weights.value_up).transpose(0, 1)
    return F.linear(value.flatten(1), weights.o_proj), shared_slots
