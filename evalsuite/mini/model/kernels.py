"""Sparse attention through the kernels of sparse_mla, chosen by the geometry of each call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from evalsuite.errors import UsageError
from evalsuite.mini.caches import ZERO_SLOT
from evalsuite.mini.config import MiniConfig
from sparse_mla.architecture import architecture_of, cache_dtype_of
from sparse_mla.dispatch import select
from sparse_mla.geometry import DECODE, Geometry, UnsupportedGeometry

ROUTE = "sparse_mla"


_row_kinds: ContextVar[frozenset[str]] = ContextVar("row_kinds")


@contextmanager
def rows(row_kinds: frozenset[str]) -> Iterator[None]:
    """Say which kinds of rows (StepMetadata.row_kinds) the attention calls inside have."""
    before = _row_kinds.set(row_kinds)
    try:
        yield
    finally:
        _row_kinds.reset(before)


def triton_attention(query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
    """Attention on the fastest kernel that declares the geometry of this call; see Attend.

    The kinds of rows are those that `rows` told. Eager steps use the kernels that can be captured,
    too: an arm with graphs differs from one without in nothing else. Raises UnsupportedGeometry
    where no kernel can, LookupError outside of `rows`.
    """
    geometry = Geometry(
        architecture=architecture_of(latent.device),
        cache_dtype=cache_dtype_of(latent),
        kv_lora_rank=latent.shape[1],
        rope_dim=0,
        heads=query.shape[1],
        row_kinds=_row_kinds.get(),
        topk=slots.shape[1],
    )
    kernel = select(geometry, capture=True)
    if kernel is None:
        if len(query):
            raise ValueError(f"{len(query)} query rows in a step without rows")
        return torch.zeros_like(query)
    return kernel.run(query, latent, slots, scale, empty_index=ZERO_SLOT)[0]


def check_supported(config: MiniConfig, dtype: torch.dtype, device: torch.device) -> None:
    """Raise UsageError where no kernel can run this model, with every kernel's reason."""
    geometry = Geometry(
        architecture=architecture_of(device),
        cache_dtype=str(dtype).removeprefix("torch."),
        kv_lora_rank=config.kv_lora_rank,
        rope_dim=0,
        heads=config.num_attention_heads,
        row_kinds=frozenset({DECODE}),
        topk=config.index_width,
    )
    try:
        select(geometry, capture=True)
    except UnsupportedGeometry as problem:
        message = f"{problem}\n`torch` runs anywhere"
        raise UsageError(message, field="engine.options.kernels") from None
