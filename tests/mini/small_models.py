"""Small random models as folders under the published names, and the trained one beside them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from evalsuite.mini.checkpoint import EMBEDDED, cast, load_checkpoint
from evalsuite.mini.config import MiniConfig, parse_config
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.names import TensorSpec, tensor_specs
from evalsuite.mini.weights import fuse

LINEAR, SPARSE = "linear_attention", "deepseek_sparse_attention"
CPU = torch.device("cpu")

BASE: dict[str, Any] = {
    "architectures": ["Glm5NextForCausalLM"],
    "model_type": "glm5_next",
    "dtype": "float32",
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 6,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 32,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 0,
    "v_head_dim": 24,
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 32,
    "index_kpool": 4,
    "indexer_types": ["full"] * 3,
    "layer_types": [LINEAR, SPARSE, LINEAR],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "linear_num_heads": 2,
    "linear_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "linear_lower_bound": -5.0,
    "hc_mult": 4,
    "hc_eps": 1e-6,
    "hc_sinkhorn_iters": 20,
    "rms_norm_eps": 1e-5,
    "swiglu_limit": 10.0,
    "num_nextn_predict_layers": 1,
    "index_share_for_mtp_iteration": True,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "eos_token_id": 0,
    "pad_token_id": 1,
}
VARIANTS: dict[str, dict[str, Any]] = {
    # The published order of kinds, many Sinkhorn passes, a tight clamp.
    "hybrid": {"swiglu_limit": 1.0},
    # Sparse layers first and last, wide pools, one expert at a time, dense FFN behind sparse.
    "sparse-first": {
        "layer_types": [SPARSE, SPARSE, LINEAR, SPARSE],
        "mlp_layer_types": ["sparse", "dense", "sparse", "dense"],
        "indexer_types": ["full"] * 4,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "index_kpool": 8,
        "index_topk": 64,
        "index_n_heads": 16,
        "hc_mult": 2,
        "hc_sinkhorn_iters": 1,
        "num_experts_per_tok": 1,
        "n_shared_experts": 2,
        "linear_num_heads": 1,
        "linear_conv_kernel_dim": 2,
        "qk_nope_head_dim": 24,
        "v_head_dim": 8,
    },
    # Pairs as pools, weights of experts that do not sum to one, slow decay, three streams.
    "pairs": {
        "layer_types": [LINEAR, LINEAR, SPARSE],
        "mlp_layer_types": ["sparse", "sparse", "sparse"],
        "index_kpool": 2,
        "index_topk": 16,
        "index_n_heads": 24,
        "index_head_dim": 16,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
        "routed_scaling_factor": 1.5,
        "linear_lower_bound": -0.5,
        "hc_mult": 3,
        "hc_sinkhorn_iters": 5,
        "num_nextn_predict_layers": 0,
    },
}


def raw_config(variant: str = "hybrid", **changes: Any) -> dict[str, Any]:
    """One small configuration as it stands in config.json."""
    return {**BASE, **VARIANTS[variant], **changes}


def random_tensors(config: MiniConfig, seed: int) -> dict[str, Tensor]:
    """Random float32 weights in which every part of the model matters for the output."""
    generator = torch.Generator().manual_seed(seed)
    return {spec.name: _random(spec, generator) for spec in tensor_specs(config)}


def _random(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    noise = torch.randn(spec.shape, generator=generator)
    if spec.name.endswith("norm.weight") or spec.name.endswith("_scale"):
        return 1.0 + 0.2 * noise
    if "embed_tokens" in spec.name:
        return noise
    if spec.name.endswith("dt_bias"):
        return noise - 1.0
    if len(spec.shape) == 1 or spec.name.endswith("_ape"):
        return 0.3 * noise
    if "conv1d" in spec.name:
        return 0.5 * noise
    return noise / math.sqrt(spec.shape[-1])


def byte_tokenizer() -> Tokenizer:
    """A tokenizer of two special tokens and the 256 bytes."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(["<|endoftext|>", "<|pad|>", *letters])}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|pad|>"])
    return tokenizer


def write_folder(folder: Path, raw: dict[str, Any], seed: int = 0) -> Path:
    """Write a loadable model folder with random weights."""
    folder.mkdir(parents=True)
    tensors = random_tensors(parse_config(raw, "test"), seed)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(raw))
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> Model:
    """The engine's model of a folder, through the same steps as the engine takes."""
    checkpoint = load_checkpoint(folder)
    tensors = cast(checkpoint.tensors, checkpoint.config, dtype, CPU)
    return Model(checkpoint.config, fuse(tensors, checkpoint.config))


def folder_of(name: str, where: Path) -> Path:
    """Folder of `trained`, or of a variant written under `where` if it is not there yet."""
    if name == "trained":
        return EMBEDDED
    folder = where / name
    return folder if folder.exists() else write_folder(folder, raw_config(name))
