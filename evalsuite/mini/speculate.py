"""Greedy verification of drafts, and the drafting recursion over the one MTP layer."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalsuite.mini.caches import SparseCache
from evalsuite.mini.metadata import DecodeInputs, StepMetadata, decode_metadata
from evalsuite.mini.model.decoder import Model, logits
from evalsuite.mini.model.mtp import mtp_layer


class Verified(NamedTuple):
    """emitted, margins [B, W]; accepted [B]: emitted[b, : accepted[b] + 1] is what came out."""

    emitted: Tensor
    margins: Tensor
    accepted: Tensor


def verify(scores: Tensor, tokens: Tensor, width: Tensor, low: Tensor, high: Tensor) -> Verified:
    """Accept the longest prefix of drafts that greedy decoding agrees with.

    scores [B, W, V] logits; tokens [B, W] the pending token and its drafts; width [B] real rows.
    `low` and `high` [B] bound the accepted count and so force a pattern: 0 and k for none. A draft
    accepted by force is emitted as if the model had chosen it.
    """
    best = scores.topk(2, -1)
    choice, margins = best.indices[..., 0], best.values[..., 0] - best.values[..., 1]
    drafts = tokens[:, 1:]
    offsets = torch.arange(tokens.shape[1], device=tokens.device)
    agrees = (drafts == choice[:, :-1]) & (offsets[1:] < width.unsqueeze(1))
    natural = agrees.long().cumprod(1).sum(1)
    limit = (width - 1).clamp(min=0)
    accepted = torch.minimum(torch.maximum(torch.minimum(natural, high), low), limit)
    shifted = torch.cat([drafts, choice[:, -1:]], 1)
    emitted = torch.where(offsets < accepted.unsqueeze(1), shifted, choice)
    return Verified(emitted, margins, accepted)


class DraftState(NamedTuple):
    """One row per request between draft steps.

    hidden [D, H] post-norm; token [D] the newest draft; slots [D, N] keys shared from step 0;
    inputs carry the request tables, with context_lens at the position of the row just computed.
    """

    hidden: Tensor
    token: Tensor
    slots: Tensor
    inputs: DecodeInputs


def first_draft(
    model: Model,
    hidden: Tensor,
    next_tokens: Tensor,
    cache: SparseCache,
    block_size: int,
    meta: StepMetadata,
    last_rows: Tensor,
    inputs: DecodeInputs,
) -> DraftState:
    """Draft step 0 over all rows of the step with the target's metadata.

    hidden [T, H] after the target's final norm; next_tokens [T]; last_rows [D] the row of each
    drafting request that its newest token was read from.
    """
    recycled, slots = mtp_layer(model, hidden, next_tokens, cache, block_size, meta)
    recycled = recycled[last_rows]
    token = logits(model, recycled).argmax(-1)
    inputs = inputs._replace(context_lens=meta.positions[last_rows])
    return DraftState(recycled, token, slots[last_rows], inputs)


def next_draft(
    model: Model, state: DraftState, cache: SparseCache, block_size: int, share_slots: bool
) -> DraftState:
    """One later draft step: one row per request, one position on."""
    inputs = state.inputs._replace(
        tokens=state.token.unsqueeze(1), context_lens=state.inputs.context_lens + 1
    )
    meta = decode_metadata(inputs, block_size, model.config.index_kpool)
    shared = state.slots if share_slots else None
    hidden, slots = mtp_layer(model, state.hidden, state.token, cache, block_size, meta, shared)
    return DraftState(hidden, logits(model, hidden).argmax(-1), slots, inputs)


def draft_all(
    model: Model,
    state: DraftState,
    cache: SparseCache,
    block_size: int,
    k: int,
    share_slots: bool,
) -> Tensor:
    """All k drafts [D, k], the first of which `state` already holds."""
    drafts = [state.token]
    for _ in range(k - 1):
        state = next_draft(model, state, cache, block_size, share_slots)
        drafts.append(state.token)
    return torch.stack(drafts, 1)
