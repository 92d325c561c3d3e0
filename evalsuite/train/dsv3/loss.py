"""Losses: next token, and drafts of the MTP layer along its own recursion."""

from __future__ import annotations

import torch
from torch import Tensor

from evalsuite.train.architecture import DRAFT_DEPTH, DRAFT_WEIGHT, Losses
from evalsuite.train.crossentropy import cross_entropy, depth_shares
from evalsuite.train.dsv3.forward import Dsv3Forward


class Dsv3Model(Dsv3Forward):
    """The forward pass with its losses. There is no selection, so `sparse` changes nothing."""

    def hidden_states(self, tokens: Tensor, sparse: bool) -> Tensor:
        """Hidden states after the final norm, [B, T, H]."""
        return self.trunk(tokens)

    def draft_states(
        self, hidden: Tensor, tokens: Tensor, depth: int, sparse: bool
    ) -> list[Tensor]:
        """Hidden states of `depth` recursions of the MTP layer, each [B, T, H]."""
        return self.draft(hidden, tokens, depth)

    def losses(self, tokens: Tensor, weights: Tensor, rows: Tensor, sparse: bool) -> Losses:
        """Losses of one batch; drafts behind the first are taken at positions rows [R]."""
        length = tokens.shape[1] - DRAFT_DEPTH - 1
        everywhere = torch.arange(length, device=tokens.device)
        hidden = self.trunk(tokens[:, :length])

        def at(state: Tensor, positions: Tensor) -> Tensor:
            return cross_entropy(self.logits(state), tokens[:, positions], weights[:, positions])

        token = at(hidden, everywhere + 1)
        drafts = self.draft(hidden, tokens, DRAFT_DEPTH, rows)
        each = [
            share * at(state, (everywhere if step == 0 else rows) + step + 2)
            for step, (state, share) in enumerate(zip(drafts, depth_shares(), strict=True))
        ]
        draft = torch.stack(each).sum()
        return Losses(token + DRAFT_WEIGHT * draft, token, draft, {})
