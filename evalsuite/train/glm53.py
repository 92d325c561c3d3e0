"""GLM-5.3-Flash's architecture as the training loop wants it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from evalsuite.mini.config import parse_config
from evalsuite.mini.names import tensor_specs
from evalsuite.train.architecture import Architecture, Losses
from evalsuite.train.forward import TrainForward
from evalsuite.train.loss import losses

FILE = Path(__file__).with_name("architecture.json")
INDEX_ROWS = 64


class Glm53Model(TrainForward):
    """The forward pass with its losses."""

    def hidden_states(self, tokens: Tensor, sparse: bool) -> Tensor:
        """Hidden states after the final norm, [B, T, H]."""
        return self.trunk(tokens, sparse)[0]

    def draft_states(
        self, hidden: Tensor, tokens: Tensor, depth: int, sparse: bool
    ) -> list[Tensor]:
        """Hidden states of `depth` recursions of the MTP layer."""
        return self.draft(hidden, tokens, depth, sparse)[0]

    def losses(self, tokens: Tensor, weights: Tensor, rows: Tensor, sparse: bool) -> Losses:
        """Next token, drafts, the indexer's imitation of attention, and memory."""
        return losses(self, tokens, weights, rows, sparse)


def architecture(raw: dict[str, Any], where: str) -> Architecture:
    """Read a configuration. Raises UsageError naming `where` and the field."""
    config = parse_config(raw, where)

    def build(params: Mapping[str, Tensor], blind: bool) -> Glm53Model:
        return Glm53Model(params, config, blind)

    return Architecture(
        name="glm53_mini",
        config=config,
        specs=tuple(tensor_specs(config)),
        build=build,
        rows=INDEX_ROWS,
        first_row=config.index_topk,
        selects=True,
    )
