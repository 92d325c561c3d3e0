"""Small random models of the DeepSeek-V3 architecture, as folders under the published names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from evalsuite.mini.names import TensorSpec
from evalsuite.train.dsv3 import FILE
from evalsuite.train.dsv3.config import parse_config
from evalsuite.train.dsv3.names import copied_tensors, tensor_specs

SMALL: dict[str, Any] = {
    "dtype": "float32",
    "vocab_size": 258,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 24,
    "v_head_dim": 20,
    "rope_scaling": None,
}
VARIANTS: dict[str, dict[str, Any]] = {
    # The sizes that are trained.
    "trained": {"dtype": "float32"},
    # Wide groups, three experts, two dense layers.
    "groups": {
        **SMALL,
        "n_routed_experts": 12,
        "n_group": 3,
        "topk_group": 2,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 2,
    },
    # One group, weights that do not sum to one, two shared experts, short wavelengths.
    "plain": {
        **SMALL,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.5,
        "n_shared_experts": 2,
        "first_k_dense_replace": 0,
        "rope_theta": 100.0,
        "v_head_dim": 8,
    },
}


def raw_config(variant: str, **changes: Any) -> dict[str, Any]:
    """A configuration as it stands in config.json."""
    return {**json.loads(FILE.read_text()), **VARIANTS[variant], **changes}


def random_tensors(raw: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Random float32 weights in which every part of the model matters for the output."""
    config = parse_config(raw, "test")
    generator = torch.Generator().manual_seed(seed)
    tensors = {spec.name: _random(spec, generator) for spec in tensor_specs(config)}
    copies = {name: tensors[original] for name, original in copied_tensors(config).items()}
    return tensors | {name: tensor.clone() for name, tensor in copies.items()}


def _random(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    noise = torch.randn(spec.shape, generator=generator)
    if spec.name.endswith("norm.weight"):
        return 1.0 + 0.2 * noise
    if spec.name.endswith("e_score_correction_bias"):
        return 0.1 * noise
    if "embed_tokens" in spec.name:
        return noise
    return noise / math.sqrt(spec.shape[-1])


def write_folder(folder: Path, raw: dict[str, Any], seed: int) -> Path:
    """Write configuration and random weights; there is no tokenizer."""
    folder.mkdir(parents=True)
    tensors = random_tensors(raw, seed)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(raw))
    return folder
