"""Weighted cross entropy, and how much each depth of the drafts counts."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from evalsuite.train.architecture import DRAFT_DEPTH

SHARE_PER_DEPTH = 0.8


def depth_shares() -> list[float]:
    """Shares of the draft loss by depth, summing to 1: deeper drafts are taken less often."""
    shares = [SHARE_PER_DEPTH**step for step in range(DRAFT_DEPTH)]
    return [share / sum(shares) for share in shares]


def cross_entropy(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean over logits [B, T, V] of tokens target [B, T] with weights [B, T]."""
    flat, wanted = logits.float().flatten(0, 1), target.flatten().long()
    each = F.cross_entropy(flat, wanted, reduction="none")
    return (each * weight.flatten()).sum() / weight.sum()
