"""Losses: next token, drafts of the MTP layer, and the indexer's imitation of attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.train.architecture import DRAFT_DEPTH, DRAFT_WEIGHT, Losses
from evalsuite.train.crossentropy import cross_entropy, depth_shares
from evalsuite.train.forward import IndexTerms, TrainForward

INDEX_WEIGHT = 1.0
MEMORY_WEIGHT = 5.0
SLOWEST_DECAY = -0.1


def losses(
    model: TrainForward, tokens: Tensor, weights: Tensor, rows: Tensor, sparse: bool
) -> Losses:
    """Losses of one batch.

    tokens, weights [B, T + DRAFT_DEPTH + 1]; rows [R] query positions for the indexer's loss.
    """
    length = tokens.shape[1] - DRAFT_DEPTH - 1
    hidden, terms = model.trunk(tokens[:, :length], sparse)
    token = _cross_entropy(model, hidden, tokens, weights, 1)
    drafts, draft_term = model.draft(hidden, tokens, DRAFT_DEPTH, sparse)
    each = [
        share * _cross_entropy(model, out, tokens, weights, step + 2)
        for step, (out, share) in enumerate(zip(drafts, depth_shares(), strict=True))
    ]
    draft = torch.stack(each).sum()
    each = [index_loss(model, term, rows) for term in [*terms, draft_term]]
    index = torch.stack(each).sum()
    memory = memory_loss(model.log_decays)
    total = token + DRAFT_WEIGHT * draft + INDEX_WEIGHT * index + MEMORY_WEIGHT * memory
    return Losses(total, token, draft, {"index": index, "memory": memory})


def memory_loss(log_decays: list[Tensor]) -> Tensor:
    """How far log-decays, each [B, T, heads, D], lie above SLOWEST_DECAY, on average.

    The recurrent state of two small heads can hold a whole word problem. Without this loss it
    does, the sparse layers go unused, and no fault in attention reaches the answers. With it the
    state forgets within some ten tokens, and what lies further back must be attended to.
    """
    return torch.stack([F.relu(decay - SLOWEST_DECAY).mean() for decay in log_decays]).mean()


def _cross_entropy(
    model: TrainForward, hidden: Tensor, tokens: Tensor, weights: Tensor, ahead: int
) -> Tensor:
    length = hidden.shape[1]
    window = slice(ahead, ahead + length)
    return cross_entropy(model.logits(hidden), tokens[:, window], weights[:, window])


def index_loss(model: TrainForward, term: IndexTerms, rows: Tensor) -> Tensor:
    """KL of the indexer's distribution over pools from the attention mass of each pool.

    The attention is dense also while the model trains sparse: what the indexer should find is
    what full attention would look at. Only the indexer's own parameters get a gradient.
    """
    config = model.config
    pool = config.index_kpool
    with torch.no_grad():
        query = term.query[:, :, rows]
        scores = (query @ term.key.transpose(-1, -2)).float() * config.softmax_scale
        length = term.key.shape[2]
        position = torch.arange(length, device=rows.device)
        scores = scores.masked_fill(position > rows[:, None], float("-inf"))
        mass = scores.softmax(-1).mean(1).unflatten(-1, (-1, pool)).sum(-1)
        ends = torch.arange(length // pool, device=rows.device) * pool + pool - 1
        visible = ends <= rows[:, None]
        mass = mass * visible
        mass = mass / mass.sum(-1, keepdim=True).clamp_min(1e-6)
    guess = model.index_scores(term.hidden, term.q_resid, rows, term.prefix)
    guess = guess.masked_fill(~visible, -1e9).log_softmax(-1)
    entropy = (mass * mass.clamp_min(1e-9).log()).sum(-1)
    divergence: Tensor = entropy - (mass * guess).sum(-1)
    return divergence.mean()
