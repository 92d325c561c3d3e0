"""Other projects' sparse-MLA kernels behind our signature, imported only where installed.

Each adapter converts arguments and brings the log-sum-exp to one convention: natural logarithm,
-inf for a row without keys. None accepts an argument that its kernel cannot honour.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache as remember
from typing import Any

import torch
from torch import Tensor

from sparse_mla.portable import check_shapes, selected

FLASH_MLA = "flash_mla"
FLASHINFER = "flashinfer"
AITER = "aiter.ops.triton.attention.sparse_mla"
WORKSPACE_BYTES = 128 << 20


def missing(module: str) -> Callable[[], str | None]:
    """A function that tells why `module` cannot be used here; None where it is installed.

    It looks for the top-level package without importing it.
    """
    package = module.partition(".")[0]

    @remember
    def reason() -> str | None:
        return None if importlib.util.find_spec(package) else f"{package} is not installed"

    return reason


def flash_mla(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    scale: float,
    *,
    cache_scale: Tensor | None = None,
    lengths: Tensor | None = None,
    empty_index: int = -1,
) -> tuple[Tensor, Tensor]:
    """FlashMLA's sparse forward for Hopper, as the package sgl-flash-mla keeps it.

    Its documented limits: BF16 query and cache, 64 or 128 heads, rows of 512 or 576 with a value
    of 512, index columns in multiples of 128. It gives +inf for a row without keys.
    """
    check_shapes(query, cache, indices, lengths)
    _refuse_scale("flash_mla", cache_scale)
    forward = importlib.import_module(FLASH_MLA).flash_mla_sparse_fwd
    found = selected(indices, len(cache), lengths, empty_index).to(torch.int32)
    out, _, lse = forward(
        query.contiguous(), cache.unsqueeze(1), found.unsqueeze(1), scale, use_legacy=True
    )
    return out, torch.where(torch.isposinf(lse), float("-inf"), lse)


def aiter(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    scale: float,
    *,
    cache_scale: Tensor | None = None,
    lengths: Tensor | None = None,
    empty_index: int = -1,
    kv_lora_rank: int = 512,
) -> tuple[Tensor, Tensor]:
    """AITER's sparse_mla_fwd (gfx942, gfx950), which takes its indices as CSR.

    Its documented limits: BF16 query; widths that are powers of two, rope 0 allowed; an FP8 cache
    with one scale, read in the architecture's own encoding (e4m3fnuz on gfx942). It gives natural
    logarithms and -inf already.
    """
    check_shapes(query, cache, indices, lengths)
    forward = importlib.import_module(AITER).sparse_mla_fwd
    found = selected(indices, len(cache), lengths, empty_index).to(torch.int32)
    rows, columns = found.shape
    start = torch.arange(rows + 1, dtype=torch.int32, device=found.device) * columns
    out, lse = forward(
        query,
        cache,
        start,
        found.flatten(),
        scale,
        kv_scale=None if cache_scale is None else cache_scale.reshape(1),
        kv_lora_rank=kv_lora_rank,
        qk_rope_head_dim=query.shape[2] - kv_lora_rank,
        has_invalid=True,
        return_lse=True,
    )
    return out, lse


def flashinfer(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    scale: float,
    *,
    cache_scale: Tensor | None = None,
    lengths: Tensor | None = None,
    empty_index: int = -1,
    kv_lora_rank: int = 512,
) -> tuple[Tensor, Tensor]:
    """FlashInfer's paged MLA with page size 1: the selected slots are the page table.

    Its plan copies lengths to the host, so that it cannot be captured. Rows without keys are left
    out of the plan and filled in afterwards. An FP8 cache has one scale.
    """
    check_shapes(query, cache, indices, lengths)
    found = selected(indices, len(cache), lengths, empty_index)
    there = found >= 0
    counts = there.sum(1)
    rows = counts.nonzero().flatten()
    out = query.new_zeros(*query.shape[:2], kv_lora_rank)
    lse = torch.full(query.shape[:2], float("-inf"), device=query.device)
    if len(rows) == 0:
        return out, lse
    wrapper = _planned(query, cache, found[there], counts[rows], scale, kv_lora_rank)
    latent, rope = cache[:, :kv_lora_rank], cache[:, kv_lora_rank:]
    part = query[rows]
    out[rows], lse[rows] = wrapper.run(
        part[..., :kv_lora_rank].contiguous(),
        part[..., kv_lora_rank:].contiguous(),
        latent.unsqueeze(1),
        rope.unsqueeze(1),
        return_lse=True,
        return_lse_base_on_e=True,
        **_flashinfer_scales(cache_scale),
    )
    return out, lse


def _planned(
    query: Tensor, cache: Tensor, pages: Tensor, counts: Tensor, scale: float, kv_lora_rank: int
) -> Any:
    device = query.device
    wrapper = importlib.import_module("flashinfer.mla").BatchMLAPagedAttentionWrapper(
        torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device=device)
    )
    start = torch.zeros(len(counts) + 1, dtype=torch.int32, device=device)
    start[1:] = counts.cumsum(0)
    wrapper.plan(
        torch.arange(len(counts) + 1, dtype=torch.int32, device=device),
        start,
        pages.to(torch.int32),
        counts.to(torch.int32),
        query.shape[1],
        kv_lora_rank,
        query.shape[2] - kv_lora_rank,
        1,
        False,
        scale,
        query.dtype,
        cache.dtype,
    )
    return wrapper


def _flashinfer_scales(cache_scale: Tensor | None) -> dict[str, float]:
    if cache_scale is None:
        return {}
    factor = float(cache_scale)
    return {"ckv_scale": factor, "kpe_scale": factor}


def _refuse_scale(kernel: str, cache_scale: Tensor | None) -> None:
    if cache_scale is not None:
        raise ValueError(f"{kernel} takes a BF16 cache and no cache_scale")
