"""Sparse layers on the kernels of sparse_mla: attention, chosen by the geometry of each call, and
the indexer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from evalsuite.errors import UsageError
from evalsuite.mini.caches import TRASH_SLOT, ZERO_SLOT, SparseCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import StepMetadata
from evalsuite.mini.model.sparse_ops import SparseOps
from evalsuite.mini.weights import SparseWeights
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


def update_pools(
    entries: Tensor,
    cache: SparseCache,
    weights: SparseWeights,
    meta: StepMetadata,
    config: MiniConfig,
) -> None:
    """What indexer.update_pools does, in two launches."""
    # Here and not above: it needs Triton.
    from sparse_mla import kpool

    kpool.update_pools(
        entries, cache.ring, cache.pool, weights.ape, meta.positions, meta.row_request,
        meta.row_valid, meta.query_start_loc, meta.state_slots, meta.pool_mapping,
        first_slot=TRASH_SLOT + 1,
    )  # fmt: skip


def select_keys(
    query: Tensor,
    head_weights: Tensor,
    cache: SparseCache,
    meta: StepMetadata,
    block_size: int,
    config: MiniConfig,
) -> Tensor:
    """What indexer.select_keys gives, but that ties go to the lower pool."""
    from sparse_mla import indexer, topk

    positions = torch.where(meta.row_valid, meta.positions, -1)
    groups = [group for group in (meta.decode, meta.prefill) if group is not None]
    scores = indexer.pool_scores(
        query,
        head_weights.float() * config.index_n_heads**-0.5,
        cache.pool,
        meta.block_tables,
        positions,
        meta.query_start_loc,
        scale=config.index_head_dim**-0.5,
        kpool=config.index_kpool,
        pools_per_block=block_size // config.index_kpool,
        max_query_len=max(group.rows.shape[1] for group in groups),
    )
    return topk.select_keys(
        scores,
        positions,
        topk=config.index_topk,
        kpool=config.index_kpool,
        block_tables=meta.block_tables,
        row_request=meta.row_request,
        block_size=block_size,
        empty=ZERO_SLOT,
        dtype=torch.int64,
    )


ATTENTION = SparseOps(triton_attention)
ALL = SparseOps(triton_attention, update_pools, select_keys)


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
