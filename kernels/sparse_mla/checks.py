"""What a call of sparse MLA must fulfil before anything is launched."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_mla.portable import check_shapes

QUERY_TYPES = (torch.bfloat16, torch.float16, torch.float32)
FP8 = torch.float8_e4m3fn


def check_call(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    kv_lora_rank: int,
    cache_scale: Tensor | None,
    lengths: Tensor | None,
    out: Tensor | None,
    lse: Tensor | None,
) -> None:
    """Raise ValueError naming the argument that the kernels cannot take."""
    check_shapes(query, cache, indices, lengths)
    _check_widths(cache.shape[1], kv_lora_rank)
    _check_types(query, cache, lengths)
    _check_scale(cache, cache_scale)
    _check_result("out", out, (*query.shape[:2], kv_lora_rank), query.dtype)
    _check_result("lse", lse, tuple(query.shape[:2]), torch.float32)
    named = {
        "cache": cache,
        "indices": indices,
        "cache_scale": cache_scale,
        "lengths": lengths,
        "out": out,
        "lse": lse,
    }
    for name, tensor in named.items():
        if tensor is not None and tensor.device != query.device:
            raise ValueError(f"{name} is on {tensor.device} and query on {query.device}")
    _check_strides(query, cache, indices, lengths)


def _check_widths(width: int, kv_lora_rank: int) -> None:
    rope = width - kv_lora_rank
    for name, value in (("kv_lora_rank", kv_lora_rank), ("rope width", rope)):
        if value & (value - 1) or (value < 16 and (name != "rope width" or value)):
            raise ValueError(f"{name} {value} of rows of {width} is no power of two from 16 on")


def _check_types(query: Tensor, cache: Tensor, lengths: Tensor | None) -> None:
    if query.dtype not in QUERY_TYPES:
        raise ValueError(f"query is {query.dtype}, expected one of {QUERY_TYPES}")
    if cache.dtype not in (query.dtype, FP8):
        raise ValueError(f"cache is {cache.dtype}, expected query's {query.dtype} or {FP8}")
    if lengths is not None and lengths.dtype != torch.int32:
        raise ValueError(f"lengths are {lengths.dtype}, expected torch.int32")


def _check_scale(cache: Tensor, cache_scale: Tensor | None) -> None:
    if cache_scale is None:
        return
    if cache.dtype != FP8:
        raise ValueError(f"a cache of {cache.dtype} takes no cache_scale")
    if cache_scale.dtype != torch.float32:
        raise ValueError(f"cache_scale is {cache_scale.dtype}, expected torch.float32")
    if cache_scale.numel() != 1 and cache_scale.shape != (len(cache),):
        raise ValueError(f"cache_scale {tuple(cache_scale.shape)} is neither one nor {len(cache)}")
    if not cache_scale.is_contiguous():
        raise ValueError("cache_scale is not contiguous")


def _check_result(
    name: str, tensor: Tensor | None, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    if tensor is None:
        return
    if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(f"{name} is no contiguous {dtype} tensor of {shape}")


def _check_strides(query: Tensor, cache: Tensor, indices: Tensor, lengths: Tensor | None) -> None:
    for name, tensor in (("query", query), ("cache", cache)):
        if tensor.stride(-1) != 1:
            raise ValueError(f"{name} is not contiguous in its last dimension")
    for name, other in (("indices", indices), ("lengths", lengths)):
        if other is not None and not other.is_contiguous():
            raise ValueError(f"{name} is not contiguous")


def report_indices(
    indices: Tensor, slots: int, lengths: Tensor | None = None, empty_index: int = -1
) -> None:
    """Raise ValueError naming the first index that is neither a slot nor -1 nor `empty_index`.

    It waits for the device, so that it cannot be captured into a graph.
    """
    wrong = ((indices < 0) & (indices != -1) | (indices >= slots)) & (indices != empty_index)
    if lengths is not None:
        if bool(((lengths < 0) | (lengths > indices.shape[1])).any()):
            raise ValueError(f"lengths are not all within 0 and the {indices.shape[1]} columns")
        wrong &= torch.arange(indices.shape[1], device=indices.device) < lengths.unsqueeze(1)
    found = wrong.nonzero()
    if len(found):
        row, column = found[0].tolist()
        raise ValueError(
            f"indices[{row}, {column}] is {int(indices[row, column])}, outside 0 .. {slots - 1}; "
            f"{len(found)} such indices in all"
        )
