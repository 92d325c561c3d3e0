"""The kernels that dispatch knows, each with what it declares.

Ours come first, then other projects' where they are installed, then those that packages offer
under the entry point group `sparse_mla.kernels`, then those that the caller registered.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Protocol, cast

from torch import Tensor

from sparse_mla import external
from sparse_mla.capability import Capability
from sparse_mla.geometry import CPU, INTERPRETER, PREFILL, Geometry
from sparse_mla.portable import gather_mla

ENTRY_POINTS = "sparse_mla.kernels"
NVIDIA = frozenset({"sm_90"})
AMD = frozenset({"gfx942", "gfx950"})
POWERS = frozenset({16, 32, 64, 128, 256, 512})
ANY_HEADS = range(1, 129)
FP8 = frozenset({"fp8_e4m3", "fp8_e4m3_row"})


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


def _load_ours(geometry: Geometry) -> SparseMla:
    function = importlib.import_module("sparse_mla.attention").sparse_mla
    return partial(function, kv_lora_rank=geometry.kv_lora_rank)


def _without_triton() -> str | None:
    return None if importlib.util.find_spec("triton") else "triton is not installed"


def _load_gather(geometry: Geometry) -> SparseMla:
    return partial(gather_mla, kv_lora_rank=geometry.kv_lora_rank)


def _ours(name: str, rope_dims: frozenset[int]) -> Entry:
    return Entry(
        name,
        (
            Capability(
                NVIDIA | AMD, frozenset({"bfloat16"}) | FP8, frozenset({512}), rope_dims, ANY_HEADS
            ),
            # The interpreter computes bfloat16 products wrongly and rounds to it by truncation.
            Capability(
                frozenset({INTERPRETER}),
                frozenset({"float32", "float16"}) | FP8,
                POWERS,
                rope_dims,
                ANY_HEADS,
            ),
        ),
        _load_ours,
        _without_triton,
    )


def _load_external(name: str) -> Callable[[Geometry], SparseMla]:
    def load(geometry: Geometry) -> SparseMla:
        function = getattr(external, name)
        if name == "flash_mla":
            return cast(SparseMla, function)
        return partial(function, kv_lora_rank=geometry.kv_lora_rank)

    return load


def _flash_mla_cost(geometry: Geometry) -> float:
    """Its full 64-head tiles win where many rows fill them; it never splits one row's keys."""
    return 0.5 if PREFILL in geometry.row_kinds else 1.5


EXTERNAL = (
    Entry(
        "flash_mla",
        (
            Capability(
                NVIDIA,
                frozenset({"bfloat16"}),
                frozenset({512}),
                frozenset({0, 64}),
                frozenset({64, 128}),
                topk_multiple=128,
            ),
        ),
        _load_external("flash_mla"),
        external.missing(external.FLASH_MLA),
        _flash_mla_cost,
    ),
    Entry(
        "aiter_sparse_mla",
        (
            Capability(
                AMD, frozenset({"bfloat16"}), frozenset({512}), frozenset({0, 64}), ANY_HEADS
            ),
            # On gfx942 it reads FP8 as e4m3fnuz, which is not how our caches are written.
            Capability(
                frozenset({"gfx950"}),
                frozenset({"fp8_e4m3"}),
                frozenset({512}),
                frozenset({0, 64}),
                ANY_HEADS,
            ),
        ),
        _load_external("aiter"),
        external.missing(external.AITER),
        lambda geometry: 0.9,
    ),
    Entry(
        "flashinfer_page1",
        (
            Capability(
                NVIDIA,
                frozenset({"bfloat16", "float16", "fp8_e4m3"}),
                frozenset({512}),
                frozenset({0, 64}),
                ANY_HEADS,
                graph_capture=False,
            ),
        ),
        _load_external("flashinfer"),
        external.missing(external.FLASHINFER),
        # It plans on the host in every call.
        lambda geometry: 4.0,
    ),
)

BUILTIN = (
    _ours("triton_latent", frozenset({0})),
    _ours("triton_rope", frozenset({64})),
    Entry(
        "torch_gather",
        (
            Capability(
                frozenset({CPU}),
                frozenset({"bfloat16", "float16", "float32"}) | FP8,
                range(1, 1025),
                range(0, 1025),
                range(1, 1025),
            ),
        ),
        _load_gather,
    ),
)

_registered: list[Entry] = []


@cache
def _offered() -> tuple[Entry, ...]:
    """Kernels of other packages. Raises TypeError where an entry point names no Entry."""
    found = []
    for point in entry_points(group=ENTRY_POINTS):
        entry = point.load()
        if not isinstance(entry, Entry):
            raise TypeError(f"entry point {point.name} of {ENTRY_POINTS} is no sparse_mla Entry")
        found.append(entry)
    return tuple(found)


def entries() -> tuple[Entry, ...]:
    """Every kernel of the table, in order."""
    return (*BUILTIN, *EXTERNAL, *_offered(), *_registered)


@contextmanager
def registered(entry: Entry) -> Iterator[None]:
    """Put one more kernel into the table for the `with` block.

    Raises ValueError where the name is taken.
    """
    if any(entry.name == other.name for other in entries()):
        raise ValueError(f"there is a kernel {entry.name!r} already")
    _registered.append(entry)
    try:
        yield
    finally:
        _registered.remove(entry)
