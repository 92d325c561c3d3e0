"""The DSA indexer with k-pooling: which keys a row attends to.

Four consecutive keys form a pool; a pool's key is a gated mean of theirs. A row selects the best
`index_topk / kpool` pools among those whose last token it may see, and always the tokens of the
incomplete pool behind them (the tail).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.caches import TRASH_REQUEST, TRASH_SLOT, ZERO_SLOT, SparseCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import Group, StepMetadata
from evalsuite.mini.weights import SparseWeights


def index_entries(key: Tensor, gate: Tensor, weights: SparseWeights) -> Tensor:
    """Raw entries [T, 2D] of the tail ring: normed key and gate score of each row."""
    dim = key.shape[-1]
    normed = F.layer_norm(
        key.float(), (dim,), weights.k_norm_weight.float(), weights.k_norm_bias.float(), 1e-6
    )
    return torch.cat([normed.to(key.dtype), gate], -1)


def compress(entries: Tensor, ape: Tensor) -> Tensor:
    """Pool key [N, D] of entries [N, kpool, 2D]: softmax over the slots, per channel."""
    key, gate = entries.chunk(2, -1)
    share = (gate.float() + ape).softmax(1).to(key.dtype)
    return (share * key).sum(1)


def update_pools(
    entries: Tensor,
    cache: SparseCache,
    weights: SparseWeights,
    meta: StepMetadata,
    config: MiniConfig,
) -> None:
    """Store the rows' entries and write the pools that they complete."""
    if meta.decode is not None:
        _update_decode(entries, cache, weights, meta, meta.decode, config)
    if meta.prefill is not None:
        _update_prefill(entries, cache, weights, meta, meta.prefill, config)


def _update_decode(
    entries: Tensor,
    cache: SparseCache,
    weights: SparseWeights,
    meta: StepMetadata,
    group: Group,
    config: MiniConfig,
) -> None:
    # The ring holds a pool's worth of tokens more than a step has rows, so storing all rows first
    # leaves every entry in place that a completed pool needs.
    rows, valid = group.rows.flatten(), group.valid.flatten()
    ring = cache.ring.shape[1]
    positions = meta.positions[rows]
    owner = meta.state_slots[meta.row_request[rows]]
    owner = torch.where(valid, owner, TRASH_REQUEST)
    cache.ring[owner, positions % ring] = entries[rows]
    back = torch.arange(config.index_kpool - 1, -1, -1, device=rows.device)
    at = (positions.unsqueeze(1) - back) % ring
    pools = torch.where(valid, meta.pool_mapping[rows], TRASH_SLOT)
    cache.pool[pools] = compress(cache.ring[owner.unsqueeze(1), at], weights.ape)


def _update_prefill(
    entries: Tensor,
    cache: SparseCache,
    weights: SparseWeights,
    meta: StepMetadata,
    group: Group,
    config: MiniConfig,
) -> None:
    ring, kpool = cache.ring.shape[1], config.index_kpool
    device, length = entries.device, group.rows.shape[1]
    owner = meta.state_slots[group.requests].unsqueeze(1)
    first = meta.positions[group.rows[:, 0]].unsqueeze(1)
    before = torch.arange(-(kpool - 1), 0, device=device)
    run = torch.cat([cache.ring[owner, (first + before) % ring], entries[group.rows]], 1)
    which = (meta.pool_mapping[group.rows] >= 2) & group.valid
    request, row = which.nonzero(as_tuple=True)
    span = row.unsqueeze(1) + torch.arange(kpool, device=device)
    pools = meta.pool_mapping[group.rows[request, row]]
    cache.pool[pools] = compress(run[request.unsqueeze(1), span], weights.ape)
    lengths = group.valid.sum(1, keepdim=True)
    recent = group.valid & (torch.arange(length, device=device) >= lengths - ring)
    request, row = recent.nonzero(as_tuple=True)
    stored = group.rows[request, row]
    cache.ring[owner[request, 0], meta.positions[stored] % ring] = entries[stored]


def select_keys(
    query: Tensor,
    head_weights: Tensor,
    cache: SparseCache,
    meta: StepMetadata,
    block_size: int,
    config: MiniConfig,
) -> Tensor:
    """Slots of the selected keys of every row, [T, topk + kpool - 1]; ZERO_SLOT where none.

    query [T, heads, D]; head_weights [T, heads].
    """
    weights = head_weights.float() * config.index_n_heads**-0.5
    groups = [group for group in (meta.decode, meta.prefill) if group is not None]
    parts = [_select_group(query, weights, cache, meta, g, block_size, config) for g in groups]
    if groups[0].covers:
        return parts[0].flatten(0, 1)
    slots = torch.full(
        (query.shape[0], config.index_width), ZERO_SLOT, dtype=torch.int64, device=query.device
    )
    for group, part in zip(groups, parts, strict=True):
        slots[group.rows[group.valid]] = part[group.valid]
    return slots


def _select_group(
    query: Tensor,
    weights: Tensor,
    cache: SparseCache,
    meta: StepMetadata,
    group: Group,
    block_size: int,
    config: MiniConfig,
) -> Tensor:
    kpool = config.index_kpool
    tables = meta.block_tables[group.requests]
    positions = meta.positions[group.rows]
    scores = pool_scores(query[group.rows], weights[group.rows], cache, tables, block_size, config)
    complete = (positions + 1) // kpool
    order = torch.arange(scores.shape[-1], device=query.device)
    scores = scores.masked_fill(order >= complete.unsqueeze(-1), float("-inf"))
    best = scores.topk(min(config.index_topk // kpool, scores.shape[-1]), -1)
    offsets = torch.arange(kpool, device=query.device)
    tokens = best.indices.unsqueeze(-1) * kpool + offsets
    tokens = torch.where(best.values.unsqueeze(-1) > float("-inf"), tokens, -1).flatten(-2)
    tail = complete.unsqueeze(-1) * kpool + offsets[: kpool - 1]
    tail = torch.where(tail <= positions.unsqueeze(-1), tail, -1)
    missing = config.index_topk - tokens.shape[-1]
    chosen = torch.cat([F.pad(tokens, (0, missing), value=-1), tail], -1)
    chosen = torch.where(group.valid.unsqueeze(-1), chosen, -1)
    return positions_to_slots(chosen, tables, block_size)


def pool_scores(
    query: Tensor,
    weights: Tensor,
    cache: SparseCache,
    tables: Tensor,
    block_size: int,
    config: MiniConfig,
) -> Tensor:
    """Scores [b, W, pools] of every pool behind the tables; query [b, W, heads, D] (any type)."""
    kpool = config.index_kpool
    per_block = torch.arange(block_size // kpool, device=tables.device)
    pools = (tables.unsqueeze(-1) * (block_size // kpool) + per_block).flatten(1)
    keys = cache.pool.index_select(0, pools.flatten()).view(*pools.shape, -1).float()
    flat = torch.matmul(query.flatten(1, 2).float(), keys.transpose(1, 2))
    scores = F.relu(flat.unflatten(1, query.shape[1:3]) * config.index_head_dim**-0.5)
    return torch.matmul(weights.unsqueeze(-2), scores).squeeze(-2)


def positions_to_slots(positions: Tensor, tables: Tensor, block_size: int) -> Tensor:
    """Slots of positions [b, W, N] (-1: none, becomes ZERO_SLOT) through tables [b, n]."""
    safe = positions.clamp(min=0)
    flat = (safe // block_size).flatten(1)
    slots = tables.gather(1, flat).view_as(safe) * block_size + safe % block_size
    return torch.where(positions >= 0, slots, ZERO_SLOT)
