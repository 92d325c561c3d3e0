"""The base model over flat rows: embedding, layers on mHC streams, final norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.caches import Caches, LinearCache, SparseCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model import mhc
from evalsuite.mini.model.linear_attention import linear_attention
from evalsuite.mini.model.moe import MoeWeights, moe, swiglu
from evalsuite.mini.model.norms import rms_norm
from evalsuite.mini.model.sparse_attention import sparse_attention
from evalsuite.mini.model.sparse_ops import IN_PYTORCH, ROUTE, SparseOps
from evalsuite.mini.weights import LayerWeights, LinearWeights, SparseWeights, Weights


@dataclass(frozen=True, slots=True)
class Model:
    """Weights, configuration and the operations that sparse layers use.

    `route` names their attention; where it chooses among kernels by itself, it counts what it
    launches.
    """

    config: MiniConfig
    weights: Weights
    ops: SparseOps = IN_PYTORCH
    route: str = ROUTE


def forward(model: Model, tokens: Tensor, caches: Caches, meta: StepMetadata) -> Tensor:
    """Hidden states after the final norm, [T, H], of flat rows tokens [T]; updates the caches."""
    config, weights = model.config, model.weights
    streams = F.embedding(tokens, weights.embed).unsqueeze(1).expand(-1, config.hc_mult, -1)
    for layer, cache in zip(weights.layers, caches.layers, strict=True):
        streams = _layer(model, layer, streams, cache, caches.shape.block_size, meta)
    return rms_norm(streams.mean(1), weights.norm, config.rms_norm_eps)


def _layer(
    model: Model,
    layer: LayerWeights,
    streams: Tensor,
    cache: SparseCache | LinearCache,
    block_size: int,
    meta: StepMetadata,
) -> Tensor:
    config = model.config
    if layer.sites is None:
        raise ValueError("a base layer without mHC sites")
    x, mixing = mhc.collapse(streams, layer.sites[0], config)
    x = rms_norm(x, layer.input_norm, config.rms_norm_eps)
    if isinstance(layer.attention, LinearWeights) and isinstance(cache, LinearCache):
        x = linear_attention(x, layer.attention, cache, meta, config)
    elif isinstance(layer.attention, SparseWeights) and isinstance(cache, SparseCache):
        x, _ = sparse_attention(x, layer.attention, cache, meta, block_size, config, model.ops)
    else:
        raise ValueError("a layer's weights and its cache are of two kinds")
    streams = mhc.expand(x, streams, mixing)
    x, mixing = mhc.collapse(streams, layer.sites[1], config)
    x = rms_norm(x, layer.post_norm, config.rms_norm_eps)
    return mhc.expand(feed_forward(x, layer, config), streams, mixing)


def feed_forward(x: Tensor, layer: LayerWeights, config: MiniConfig) -> Tensor:
    """The layer's FFN over rows x [T, H]."""
    if isinstance(layer.ffn, MoeWeights):
        return moe(x, layer.ffn, config)
    return swiglu(x, layer.ffn, config.swiglu_limit)


def logits(model: Model, hidden: Tensor) -> Tensor:
    """Vocabulary logits [T, V] of hidden states [T, H].

    Computed in float32: rounded to bfloat16 the best two would often tie, and greedy decoding
    would hang on which of them a kernel happens to list first.
    """
    return F.linear(hidden.float(), model.weights.head.float())
