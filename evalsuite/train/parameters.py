"""Initial parameters and what of them is trained how."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from evalsuite.mini.names import TensorSpec


def initial_parameters(
    specs: Iterable[TensorSpec], seed: int, device: torch.device
) -> dict[str, Tensor]:
    """Fresh float32 parameters under their published names."""
    generator = torch.Generator().manual_seed(seed)
    return {
        spec.name: _initial(spec, generator).to(device).requires_grad_(is_trained(spec.name))
        for spec in specs
    }


def is_trained(name: str) -> bool:
    """The router's bias is moved by the load, not by a gradient."""
    return not name.endswith("e_score_correction_bias")


def decays(name: str, value: Tensor) -> bool:
    """Weight decay acts on matrices, not on norms, biases, embeddings or decay parameters."""
    return value.ndim == 2 and "embed_tokens" not in name and "_ape" not in name


def _initial(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    name, shape = spec.name, spec.shape
    if name.endswith(("norm.weight", "layernorm.weight", "_scale")):
        return torch.ones(shape)
    if name.endswith(("norm.bias", "_base", "_ape", "A_log", "e_score_correction_bias")):
        return torch.zeros(shape)
    if name.endswith("dt_bias"):
        # Inverse softplus of steps between 0.02 and 0.3: a memory of one to ten tokens.
        low, high = math.log(0.02), math.log(0.3)
        steps = torch.empty(shape).uniform_(low, high, generator=generator).exp()
        return torch.expm1(steps).log()
    if "conv1d" in name:
        return torch.randn(shape, generator=generator) * 0.5
    if (
        len(shape) == 2
        and "embed_tokens" not in name
        and "lm_head" not in name
        and "_fn" not in name
    ):
        return torch.randn(shape, generator=generator) * (0.6 / math.sqrt(shape[1]))
    return torch.randn(shape, generator=generator) * 0.02


def compute_copies(
    params: dict[str, Tensor], specs: Iterable[TensorSpec], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Parameters as the forward pass sees them: rounded to `dtype` where the file rounds them."""
    keep = {spec.name for spec in specs if spec.float32}
    return {name: p if name in keep else p.to(dtype) for name, p in params.items()}
