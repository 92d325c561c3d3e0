"""The device memory of one session: paged rows, pools, tail rings, recurrent states.

Addressing. Block 0 is never given to a request: its slot 0 stays zero and stands for "no key",
its slot 1 takes the writes of padded rows. Request slot 0 likewise takes the states of padded
requests. So a captured step needs no branches and padded rows cannot touch live memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evalsuite.mini.config import LINEAR, MiniConfig

ZERO_SLOT = 0
TRASH_SLOT = 1
TRASH_REQUEST = 0


@dataclass(frozen=True, slots=True)
class CacheShape:
    """Sizes. `num_blocks` and `num_requests` include the reserved first ones."""

    num_blocks: int
    block_size: int
    num_requests: int
    num_speculative_tokens: int
    num_snapshots: int

    @property
    def num_slots(self) -> int:
        """Token slots, the reserved ones included."""
        return self.num_blocks * self.block_size


def ring_size(kpool: int, num_speculative_tokens: int) -> int:
    """Slots of a request's tail ring: so many that drafts behind a rejected one fit."""
    pools = -(-(kpool + num_speculative_tokens) // kpool)
    return int(kpool * 2 ** (pools - 1).bit_length())


@dataclass(frozen=True, slots=True)
class SparseCache:
    """One sparse layer: latent [slots, kv_lora], pool [slots / kpool, D], ring [requests, R, 2D].

    The ring keeps the raw index key and gate of recent tokens, addressed by position mod R.
    """

    latent: Tensor
    pool: Tensor
    ring: Tensor


@dataclass(frozen=True, slots=True)
class LinearCache:
    """One linear-attention layer, per request.

    conv [requests, taps - 1 + k, 3W]: inputs of the convolution; state [requests, k + 1, heads, D,
    D] float32: the recurrent state after each row of the last step. Both are read from the offset
    that the accepted count names. kept_conv [snapshots, taps - 1, 3W] and kept_state [snapshots,
    heads, D, D] are the states at block boundaries that the prefix cache holds.
    """

    conv: Tensor
    state: Tensor
    kept_conv: Tensor
    kept_state: Tensor


@dataclass(frozen=True, slots=True)
class Caches:
    """All layers' caches; `layers` in model order, `mtp` for the MTP layer or None."""

    shape: CacheShape
    layers: tuple[SparseCache | LinearCache, ...]
    mtp: SparseCache | None

    @property
    def dtype(self) -> torch.dtype:
        """Type of the rows; recurrent states are float32 whatever it is."""
        first = self.layers[0]
        return first.conv.dtype if isinstance(first, LinearCache) else first.latent.dtype

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name, for tests that compare bytes."""
        found = {}
        named = [(f"layer{i}", cache) for i, cache in enumerate(self.layers)]
        for name, cache in [*named, *([("mtp", self.mtp)] if self.mtp else [])]:
            for part in cache.__slots__:
                found[f"{name}.{part}"] = getattr(cache, part)
        return found


def allocate(
    config: MiniConfig, shape: CacheShape, dtype: torch.dtype, device: torch.device, with_mtp: bool
) -> Caches:
    """Zeroed caches for one session."""

    def sparse() -> SparseCache:
        dim = config.index_head_dim
        ring = ring_size(config.index_kpool, shape.num_speculative_tokens)
        return SparseCache(
            torch.zeros(shape.num_slots, config.kv_lora_rank, dtype=dtype, device=device),
            torch.zeros(shape.num_slots // config.index_kpool, dim, dtype=dtype, device=device),
            torch.zeros(shape.num_requests, ring, 2 * dim, dtype=dtype, device=device),
        )

    def linear() -> LinearCache:
        window = config.linear_conv_kernel_dim - 1 + shape.num_speculative_tokens
        heads, dim = config.linear_num_heads, config.linear_head_dim
        states = shape.num_speculative_tokens + 1
        return LinearCache(
            torch.zeros(
                shape.num_requests, window, 3 * config.linear_dim, dtype=dtype, device=device
            ),
            torch.zeros(shape.num_requests, states, heads, dim, dim, device=device),
            torch.zeros(
                shape.num_snapshots,
                config.linear_conv_kernel_dim - 1,
                3 * config.linear_dim,
                dtype=dtype,
                device=device,
            ),
            torch.zeros(shape.num_snapshots, heads, dim, dim, device=device),
        )

    layers = tuple(linear() if kind == LINEAR else sparse() for kind in config.layer_types)
    return Caches(shape, layers, sparse() if with_mtp else None)
