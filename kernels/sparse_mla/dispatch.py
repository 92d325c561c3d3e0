"""The choice of an attention kernel by geometry: the fastest that can, or an error that says why.

There is no fallback: a geometry that no kernel declares is refused. Whether rows are decode or
verification rows matters only where a kernel says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from typing import Any

from torch import Tensor

from sparse_mla import launches
from sparse_mla.architecture import cache_dtype_of
from sparse_mla.geometry import Geometry, UnsupportedGeometry
from sparse_mla.table import Entry, SparseMla, entries


@dataclass(frozen=True)
class Kernel:
    """A kernel chosen for one geometry. `run` is its host function, which counts its launches."""

    name: str
    geometry: Geometry
    load: Callable[[Geometry], SparseMla]

    @cached_property
    def function(self) -> SparseMla:
        """The host function, imported when it is first needed."""
        return self.load(self.geometry)

    def run(
        self, query: Tensor, cache: Tensor, indices: Tensor, scale: float, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """out [T, heads, kv_lora_rank] and lse [T, heads]; arguments as sparse_mla.attention's.

        Raises ValueError where the tensors are of another geometry than the kernel was chosen for.
        """
        self._check(query, cache, indices, options.get("cache_scale"))
        launches.count(self.name, self.geometry.row_kinds)
        return self.function(query, cache, indices, scale, **options)

    def _check(
        self, query: Tensor, cache: Tensor, indices: Tensor, cache_scale: Tensor | None
    ) -> None:
        wanted = self.geometry
        found = {
            "heads": (query.shape[1], wanted.heads),
            "query width": (query.shape[2], wanted.width),
            "cache width": (cache.shape[1], wanted.width),
            "top-k": (indices.shape[1], wanted.topk),
            "cache dtype": (cache_dtype_of(cache, cache_scale), wanted.cache_dtype),
        }
        for what, (given, should) in found.items():
            if given != should:
                raise ValueError(f"{self.name} was chosen for {what} {should}, called with {given}")


# Set by sparse_mla.forcing alone.
override: Callable[[Geometry], Kernel | None] | None = None


@dataclass(frozen=True)
class _Choices:
    """What was chosen among `entries`: a step asks for the same geometry once a layer."""

    entries: tuple[Entry, ...]
    kernels: dict[tuple[Geometry, bool], Kernel] = field(default_factory=dict)


_choices = _Choices(())


def select(geometry: Geometry, *, capture: bool = False) -> Kernel | None:
    """The fastest kernel that can compute `geometry`; None for an empty batch.

    `capture`: only kernels whose launch can be captured into a graph. Raises UnsupportedGeometry
    listing for each kernel why it cannot.
    """
    global _choices
    if not geometry.row_kinds:
        return None
    forced = override(geometry) if override is not None else None
    if forced is not None:
        return forced
    table = entries()
    if len(table) != len(_choices.entries) or not all(map(is_, table, _choices.entries)):
        _choices = _Choices(table)
    kernels = _choices.kernels
    if (geometry, capture) not in kernels:
        kernels[geometry, capture] = _fastest(table, geometry, capture)
    return kernels[geometry, capture]


def _fastest(table: tuple[Entry, ...], geometry: Geometry, capture: bool) -> Kernel:
    refusals = {entry.name: entry.refusal(geometry, capture) for entry in table}
    able = [entry for entry in table if refusals[entry.name] is None]
    if not able:
        lines = [f"  {name}: {reason}" for name, reason in refusals.items()]
        raise UnsupportedGeometry("\n".join([f"no kernel for {geometry}", *lines]))
    chosen = min(able, key=lambda entry: entry.cost(geometry))
    return Kernel(chosen.name, geometry, chosen.load)
