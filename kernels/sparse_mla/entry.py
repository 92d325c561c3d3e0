"""One kernel of the dispatch table: what it declares, how to get it, where it is preferred."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from sparse_mla.capability import Capability
from sparse_mla.geometry import Geometry


class SparseMla(Protocol):
    """The signature that every kernel's host function has; see sparse_mla.attention."""

    def __call__(
        self,
        query: Tensor,
        cache: Tensor,
        indices: Tensor,
        scale: float,
        *,
        cache_scale: Tensor | None = None,
        lengths: Tensor | None = None,
        empty_index: int = -1,
    ) -> tuple[Tensor, Tensor]:
        """Return out [T, heads, kv_lora_rank] and natural lse [T, heads]."""


def no_reason() -> str | None:
    """The kernel can be used wherever its declaration fits."""
    return None


@dataclass(frozen=True)
class Entry:
    """One kernel: its name, what it declares, how to get it, and where it is preferred.

    `load` imports and returns the host function for a geometry; `missing` tells why the kernel
    cannot be used on this machine, or None. Of the kernels that can compute a geometry the one
    with the lowest `cost` is taken, the earlier entry among equals.
    """

    name: str
    capabilities: tuple[Capability, ...]
    load: Callable[[Geometry], SparseMla]
    missing: Callable[[], str | None] = no_reason
    cost: Callable[[Geometry], float] = lambda geometry: 1.0

    def refusal(self, geometry: Geometry, capture: bool) -> str | None:
        """Why this kernel cannot compute `geometry` here; None where it can."""
        reason = self.missing()
        if reason:
            return reason
        refusals = [one.refusals(geometry, capture) for one in self.capabilities]
        nearest = min(refusals, key=len)
        return "; ".join(nearest) or None
