"""The architecture that a tensor's device has, as geometries name it."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from sparse_mla.geometry import CPU, INTERPRETER

DTYPE_NAMES = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float8_e4m3fn: "fp8_e4m3",
}


def interpreting() -> bool:
    """Whether Triton kernels run in its interpreter (TRITON_INTERPRET)."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "y", "yes")


def architecture_of(device: torch.device) -> str:
    """ "sm_90", "gfx942" …, "interpreter" or "cpu". Raises ValueError for other devices."""
    if device.type == "cuda":
        if torch.version.hip:
            name: str = torch.cuda.get_device_properties(device).gcnArchName
            return name.partition(":")[0]
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"
    if device.type == "cpu":
        return INTERPRETER if interpreting() else CPU
    raise ValueError(f"no kernels for devices of type {device.type}")


def cache_dtype_of(cache: Tensor, cache_scale: Tensor | None = None) -> str:
    """The cache dtype of a geometry. Raises ValueError for types that no kernel knows."""
    name = DTYPE_NAMES.get(cache.dtype)
    if name is None:
        raise ValueError(f"cache dtype {cache.dtype} is none of {', '.join(map(str, DTYPE_NAMES))}")
    per_row = cache_scale is not None and cache_scale.ndim > 0 and cache_scale.numel() > 1
    return f"{name}_row" if name == "fp8_e4m3" and per_row else name
