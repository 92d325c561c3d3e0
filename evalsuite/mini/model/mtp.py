"""The MTP layer: one step of drafting from a hidden state and the token after it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.caches import SparseCache
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model.decoder import Model, feed_forward
from evalsuite.mini.model.norms import rms_norm
from evalsuite.mini.model.sparse_attention import sparse_attention
from evalsuite.mini.weights import SparseWeights


def mtp_layer(
    model: Model,
    hidden: Tensor,
    next_tokens: Tensor,
    cache: SparseCache,
    block_size: int,
    meta: StepMetadata,
    shared_slots: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Post-norm hidden [T, H] of the drafter, and the slots its rows attended to.

    hidden [T, H] is the target's (step 0) or the previous draft step's post-norm state at
    meta.positions; next_tokens [T] the tokens one position on. At position 0 the embedding is
    zeroed. No mHC: a plain pre-norm residual.
    """
    config, mtp = model.config, model.weights.mtp
    if mtp is None or not isinstance(mtp.block.attention, SparseWeights):
        raise ValueError("the checkpoint has no MTP layer")
    eps = config.rms_norm_eps
    embedded = F.embedding(next_tokens, model.weights.embed)
    embedded = torch.where(meta.positions.unsqueeze(-1) == 0, 0.0, embedded).to(hidden.dtype)
    joined = torch.cat([rms_norm(embedded, mtp.enorm, eps), rms_norm(hidden, mtp.hnorm, eps)], -1)
    x = F.linear(joined, mtp.eh_proj)
    out, slots = sparse_attention(
        rms_norm(x, mtp.block.input_norm, eps),
        mtp.block.attention,
        cache,
        meta,
        block_size,
        config,
        model.ops,
        shared_slots,
    )
    x = x + out
    x = x + feed_forward(rms_norm(x, mtp.block.post_norm, eps), mtp.block, config)
    return rms_norm(x, mtp.head_norm, eps), slots
