"""What a DSA sublayer computes with: attention, and the operations of the indexer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from evalsuite.mini.caches import ZERO_SLOT, SparseCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model import indexer
from evalsuite.mini.weights import SparseWeights


class Attend(Protocol):
    """Attention of absorbed queries over selected rows of the latent cache."""

    def __call__(self, query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
        """query [T, heads, C], latent [slots, C], slots [T, N]; returns [T, heads, C]."""


# As indexer.update_pools and indexer.select_keys.
UpdatePools = Callable[[Tensor, SparseCache, SparseWeights, StepMetadata, MiniConfig], None]
SelectKeys = Callable[[Tensor, Tensor, SparseCache, StepMetadata, int, MiniConfig], Tensor]
# Rows gathered at once: their keys stay in a CPU's cache, and a GPU's memory stays bounded.
ROWS_AT_ONCE = {"cpu": 16, "cuda": 4096}


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


class SparseOps(NamedTuple):
    """What a DSA sublayer computes with; each in PyTorch unless told otherwise."""

    attend: Attend = gather_attention
    update_pools: UpdatePools = indexer.update_pools
    select_keys: SelectKeys = indexer.select_keys


IN_PYTORCH = SparseOps()
ROUTE = "torch_gather"
