"""What the training loop asks of an architecture: its tensors, a forward pass, losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from evalsuite.mini.names import TensorSpec

DRAFT_DEPTH = 5
DRAFT_WEIGHT = 0.3


class Losses(NamedTuple):
    """Scalars; `total` is what is minimised, the rest is for the log."""

    total: Tensor
    token: Tensor
    draft: Tensor
    extra: dict[str, Tensor]

    def detached(self) -> Losses:
        """The same scalars without their graph."""
        extra = {name: value.detach() for name, value in self.extra.items()}
        return Losses(self.total.detach(), self.token.detach(), self.draft.detach(), extra)


class TrainModel(Protocol):
    """A forward pass over one set of parameters.

    `loads` has the share of rows that every expert got, [E], by the prefix of its mixture.
    """

    loads: dict[str, Tensor]

    def hidden_states(self, tokens: Tensor, sparse: bool) -> Tensor:
        """Hidden states after the final norm, [B, T, H], for tokens [B, T]."""
        ...

    def draft_states(
        self, hidden: Tensor, tokens: Tensor, depth: int, sparse: bool
    ) -> list[Tensor]:
        """Hidden states of `depth` recursions of the MTP layer, each [B, T, H].

        tokens [B, T + depth]: the row at position p takes token p + 1 + j at step j.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits of hidden states."""
        ...

    def losses(self, tokens: Tensor, weights: Tensor, rows: Tensor, sparse: bool) -> Losses:
        """Losses of one batch.

        tokens, weights [B, T + DRAFT_DEPTH + 1]; rows [R] positions at which costly losses are
        taken.
        """
        ...


class TrainConfig(Protocol):
    """What the loop itself reads of a configuration."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_position_embeddings(self) -> int: ...


@dataclass(frozen=True)
class Architecture:
    """One configured architecture.

    `build(params, blind)` makes a forward pass (`blind`: attention returns zeros); `rows` positions
    from `first_row` on are drawn for the costly losses; `selects` tells whether there is sparse
    attention, trained dense first; `copies` are tensors that the file holds a second time, by the
    name of the original.
    """

    name: str
    config: TrainConfig
    specs: tuple[TensorSpec, ...]
    build: Callable[[Mapping[str, Tensor], bool], TrainModel]
    rows: int
    first_row: int = 0
    selects: bool = False
    copies: Mapping[str, str] = field(default_factory=dict)
