"""The indexer's operations in plain PyTorch and float64, written for reading."""

from __future__ import annotations

import torch
from torch import Tensor


def pool_scores(
    query: Tensor,
    weights: Tensor,
    pool: Tensor,
    block_tables: Tensor,
    positions: Tensor,
    query_start_loc: Tensor,
    *,
    scale: float,
    kpool: int,
    pools_per_block: int,
) -> Tensor:
    """Scores [T, pools] float64; arguments as sparse_mla.indexer.pool_scores."""
    num_pools = block_tables.shape[1] * pools_per_block
    scores = torch.full((len(query), num_pools), float("-inf"), dtype=torch.float64)
    bounds = query_start_loc.tolist()
    for request, table in enumerate(block_tables):
        offsets = torch.arange(pools_per_block)
        keys = pool[(table.unsqueeze(1) * pools_per_block + offsets).flatten()].double()
        for row in range(bounds[request], bounds[request + 1]):
            alike = (query[row].double() @ keys.T * scale).relu()
            complete = min((int(positions[row]) + 1) // kpool, num_pools)
            scores[row, :complete] = (weights[row].double() @ alike)[:complete]
    return scores


def select_keys(
    scores: Tensor,
    positions: Tensor,
    *,
    topk: int,
    kpool: int,
    block_tables: Tensor | None = None,
    row_request: Tensor | None = None,
    block_size: int = 0,
    empty: int = -1,
) -> Tensor:
    """Keys [T, topk + kpool - 1] int64; arguments as sparse_mla.topk.select_keys."""
    out = torch.full((len(scores), topk + kpool - 1), empty, dtype=torch.int64)

    def key(row: int, token: int) -> int:
        if block_tables is None or row_request is None:
            return token
        table = block_tables[row_request[row]]
        if token // block_size >= len(table):
            return empty
        return int(table[token // block_size]) * block_size + token % block_size

    for row, position in enumerate(positions.tolist()):
        complete = (position + 1) // kpool
        pools = range(min(complete, scores.shape[1]))
        best = sorted(pools, key=lambda pool: (-float(scores[row, pool]), pool))[: topk // kpool]
        tokens = [pool * kpool + i for pool in best for i in range(kpool)]
        for column, token in enumerate(tokens):
            out[row, column] = key(row, token)
        for i, token in enumerate(range(complete * kpool, position + 1)):
            out[row, topk + i] = key(row, token)
    return out


def compress(entries: Tensor, ape: Tensor) -> Tensor:
    """Pool key [D] float64 of the entries [kpool, 2D] of its tokens: key and gate of each.

    The shares are a softmax of gate + ape over the tokens, for each channel.
    """
    key, gate = entries.double().chunk(2, -1)
    return ((gate + ape.double()).softmax(0) * key).sum(0)


def fit_keys(indices: Tensor, width: int, tail: int, *, empty: int = -1) -> Tensor:
    """Keys [T, width]; arguments as sparse_mla.fit.fit_keys."""
    out = torch.full((len(indices), width), empty, dtype=indices.dtype)
    for row, columns in enumerate(indices.tolist()):
        history = [index for index in columns[: len(columns) - tail] if index != empty]
        live = [index for index in columns[len(columns) - tail :] if index != empty]
        kept = history[: width - len(live)] + live
        out[row, : len(kept)] = torch.tensor(kept, dtype=indices.dtype)
    return out
