"""Published tensor names of a glm5_next text checkpoint, with their shapes and storage types.

The names are those of the released checkpoints (flat text form, prefix `model.`), so that
transformers and serving engines load the same folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evalsuite.mini.config import LINEAR, MiniConfig

FLOAT32_SUFFIXES = (
    "A_log",
    "dt_bias",
    "e_score_correction_bias",
    "conv1d.weight",
    "_base",
    "_scale",
)


class TensorSpec(NamedTuple):
    """One tensor of the checkpoint. `float32` marks those that keep full precision."""

    name: str
    shape: tuple[int, ...]
    float32: bool


def tensor_specs(config: MiniConfig) -> Iterator[TensorSpec]:
    """Every tensor that a checkpoint of this configuration holds, in file order."""
    hidden = config.hidden_size
    yield _spec("model.embed_tokens.weight", config.vocab_size, hidden)
    for index in range(config.num_hidden_layers):
        yield from _base_layer(config, index)
    for index in range(config.num_nextn_predict_layers):
        yield from _mtp_layer(config, config.num_hidden_layers + index)
    yield _spec("model.norm.weight", hidden)
    yield _spec("lm_head.weight", config.vocab_size, hidden)


def _spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, shape, name.endswith(FLOAT32_SUFFIXES))


def _base_layer(config: MiniConfig, index: int) -> Iterator[TensorSpec]:
    prefix = f"model.layers.{index}."
    for site in ("attn", "ffn"):
        mix = (2 + config.hc_mult) * config.hc_mult
        yield _spec(f"{prefix}hc_{site}_fn", mix, config.hc_mult * config.hidden_size)
        yield _spec(f"{prefix}hc_{site}_base", mix)
        yield _spec(f"{prefix}hc_{site}_scale", 3)
    yield from _block_norms(config, prefix)
    linear = config.layer_types[index] == LINEAR
    yield from (_linear_attention if linear else _sparse_attention)(config, f"{prefix}self_attn.")
    yield from _ffn(config, f"{prefix}mlp.", config.mlp_layer_types[index])


def _mtp_layer(config: MiniConfig, index: int) -> Iterator[TensorSpec]:
    prefix, hidden = f"model.layers.{index}.", config.hidden_size
    yield _spec(f"{prefix}enorm.weight", hidden)
    yield _spec(f"{prefix}hnorm.weight", hidden)
    yield _spec(f"{prefix}eh_proj.weight", hidden, 2 * hidden)
    yield from _block_norms(config, prefix)
    yield from _sparse_attention(config, f"{prefix}self_attn.")
    yield from _ffn(config, f"{prefix}mlp.", config.mlp_layer_types[-1])
    yield _spec(f"{prefix}shared_head.norm.weight", hidden)


def _block_norms(config: MiniConfig, prefix: str) -> Iterator[TensorSpec]:
    yield _spec(f"{prefix}input_layernorm.weight", config.hidden_size)
    yield _spec(f"{prefix}post_attention_layernorm.weight", config.hidden_size)


def _linear_attention(config: MiniConfig, prefix: str) -> Iterator[TensorSpec]:
    hidden, width, rank = config.hidden_size, config.linear_dim, config.linear_head_dim
    for part in "qkv":
        yield _spec(f"{prefix}{part}_proj.weight", width, hidden)
    for part in "qkv":
        yield _spec(f"{prefix}{part}_conv1d.weight", width, 1, config.linear_conv_kernel_dim)
    yield _spec(f"{prefix}f_a_proj.weight", rank, hidden)
    yield _spec(f"{prefix}f_b_proj.weight", width, rank)
    yield _spec(f"{prefix}A_log", config.linear_num_heads)
    yield _spec(f"{prefix}dt_bias", width)
    yield _spec(f"{prefix}b_proj.weight", config.linear_num_heads, hidden)
    yield _spec(f"{prefix}g_a_proj.weight", rank, hidden)
    yield _spec(f"{prefix}g_b_proj.weight", width, rank)
    yield _spec(f"{prefix}o_norm.weight", rank)
    yield _spec(f"{prefix}o_proj.weight", hidden, width)


def _sparse_attention(config: MiniConfig, prefix: str) -> Iterator[TensorSpec]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    yield _spec(f"{prefix}q_a_proj.weight", config.q_lora_rank, hidden)
    yield _spec(f"{prefix}q_a_layernorm.weight", config.q_lora_rank)
    yield _spec(f"{prefix}q_b_proj.weight", heads * config.qk_nope_head_dim, config.q_lora_rank)
    yield _spec(f"{prefix}kv_a_proj_with_mqa.weight", config.kv_lora_rank, hidden)
    yield _spec(f"{prefix}kv_a_layernorm.weight", config.kv_lora_rank)
    expanded = heads * (config.qk_nope_head_dim + config.v_head_dim)
    yield _spec(f"{prefix}kv_b_proj.weight", expanded, config.kv_lora_rank)
    yield _spec(f"{prefix}o_proj.weight", hidden, heads * config.v_head_dim)
    yield from _indexer(config, f"{prefix}indexer.")


def _indexer(config: MiniConfig, prefix: str) -> Iterator[TensorSpec]:
    hidden, dim = config.hidden_size, config.index_head_dim
    yield _spec(f"{prefix}wq_b.weight", config.index_n_heads * dim, config.q_lora_rank)
    yield _spec(f"{prefix}wk.weight", dim, hidden)
    yield _spec(f"{prefix}k_norm.weight", dim)
    yield _spec(f"{prefix}k_norm.bias", dim)
    yield _spec(f"{prefix}weights_proj.weight", config.index_n_heads, hidden)
    yield _spec(f"{prefix}index_kpool_compress_ape", config.index_kpool, dim)
    yield _spec(f"{prefix}index_kpool_compress_gate", dim, hidden)


def _ffn(config: MiniConfig, prefix: str, kind: str) -> Iterator[TensorSpec]:
    hidden = config.hidden_size
    if kind == "dense":
        yield from _swiglu(prefix, hidden, config.intermediate_size)
        return
    yield _spec(f"{prefix}gate.weight", config.n_routed_experts, hidden)
    yield _spec(f"{prefix}gate.e_score_correction_bias", config.n_routed_experts)
    for expert in range(config.n_routed_experts):
        yield from _swiglu(f"{prefix}experts.{expert}.", hidden, config.moe_intermediate_size)
    if config.n_shared_experts:
        width = config.moe_intermediate_size * config.n_shared_experts
        yield from _swiglu(f"{prefix}shared_experts.", hidden, width)


def _swiglu(prefix: str, hidden: int, width: int) -> Iterator[TensorSpec]:
    yield _spec(f"{prefix}gate_proj.weight", width, hidden)
    yield _spec(f"{prefix}up_proj.weight", width, hidden)
    yield _spec(f"{prefix}down_proj.weight", hidden, width)
