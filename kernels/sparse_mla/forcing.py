"""The one seam by which a kernel runs against its declaration, for proving that a gate sees it.

A selector once sent verification rows to a kernel built for 576-wide rows over a cache of
512-wide ones (vLLM #55239). `select` cannot do that. `forced` can, for as long as its block lasts.
Nothing but the injection of faults may import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sparse_mla import dispatch, launches
from sparse_mla.dispatch import Kernel
from sparse_mla.geometry import Geometry
from sparse_mla.table import entries


@dataclass(frozen=True)
class ForcedKernel(Kernel):
    """A kernel made for rows of `assumed` elements, run over memory that holds other rows."""

    assumed: int

    def run(
        self, query: Tensor, cache: Tensor, indices: Tensor, scale: float, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Run on the same memory, addressed as rows of the width that the kernel was built for.

        Reads stay inside the tensors: what lies behind their end counts as no key, or as zeros.
        """
        launches.count(self.name, self.geometry.row_kinds)
        if self.assumed != cache.shape[1]:
            rows = cache.numel() // self.assumed
            cache = cache.reshape(-1)[: rows * self.assumed].view(rows, self.assumed)
            query = _readdressed(query, self.assumed)
        return self.function(query, cache, indices, scale, **options)


def _readdressed(query: Tensor, width: int) -> Tensor:
    """Query [T, heads, width] read from the start of the same memory, zeros behind its end."""
    size = query.shape[0] * query.shape[1] * width
    flat = torch.zeros(size, dtype=query.dtype, device=query.device)
    known = min(size, query.numel())
    flat[:known] = query.reshape(-1)[:known]
    return flat.view(query.shape[0], query.shape[1], width)


@contextmanager
def forced(name: str, row_kinds: Set[str], *, rope_dim: int) -> Iterator[None]:
    """Send calls with any of `row_kinds` to kernel `name` as if their rope were `rope_dim` wide.

    Raises KeyError where there is no such kernel, RuntimeError where one is forced already.
    """
    if dispatch.override is not None:
        raise RuntimeError("a kernel is forced already")
    entry = next((entry for entry in entries() if entry.name == name), None)
    if entry is None:
        raise KeyError(name)

    def override(geometry: Geometry) -> Kernel | None:
        if not geometry.row_kinds & row_kinds:
            return None
        believed = replace(geometry, rope_dim=rope_dim)
        return ForcedKernel(name, geometry, lambda _: entry.load(believed), believed.width)

    dispatch.override = override
    try:
        yield
    finally:
        dispatch.override = None
