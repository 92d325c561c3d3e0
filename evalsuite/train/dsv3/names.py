"""Published tensor names of a deepseek_v3 checkpoint, with their shapes and storage types."""

from __future__ import annotations

from collections.abc import Iterator

from evalsuite.mini.names import TensorSpec
from evalsuite.train.dsv3.config import Dsv3Config


def tensor_specs(config: Dsv3Config) -> Iterator[TensorSpec]:
    """Every tensor that is trained, in file order."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    yield _spec("model.embed_tokens.weight", config.vocab_size, hidden)
    for index in range(layers):
        yield from _block(config, f"model.layers.{index}.", config.is_dense(index))
    prefix = f"model.layers.{layers}."
    yield _spec(f"{prefix}enorm.weight", hidden)
    yield _spec(f"{prefix}hnorm.weight", hidden)
    yield _spec(f"{prefix}eh_proj.weight", hidden, 2 * hidden)
    yield from _block(config, prefix, config.is_dense(layers))
    yield _spec(f"{prefix}shared_head.norm.weight", hidden)
    yield _spec("model.norm.weight", hidden)
    yield _spec("lm_head.weight", config.vocab_size, hidden)


def copied_tensors(config: Dsv3Config) -> dict[str, str]:
    """Names under which the published files hold a tensor again, with the original's name."""
    prefix = f"model.layers.{config.num_hidden_layers}."
    return {
        f"{prefix}embed_tokens.weight": "model.embed_tokens.weight",
        f"{prefix}shared_head.head.weight": "lm_head.weight",
    }


def _spec(name: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, shape, name.endswith("e_score_correction_bias"))


def _block(config: Dsv3Config, prefix: str, dense: bool) -> Iterator[TensorSpec]:
    yield _spec(f"{prefix}input_layernorm.weight", config.hidden_size)
    yield _spec(f"{prefix}post_attention_layernorm.weight", config.hidden_size)
    yield from _attention(config, f"{prefix}self_attn.")
    if dense:
        yield from _swiglu(f"{prefix}mlp.", config.hidden_size, config.intermediate_size)
    else:
        yield from _mixture(config, f"{prefix}mlp.")


def _attention(config: Dsv3Config, prefix: str) -> Iterator[TensorSpec]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    latent, expanded = config.kv_lora_rank, config.qk_nope_head_dim + config.v_head_dim
    yield _spec(f"{prefix}q_a_proj.weight", config.q_lora_rank, hidden)
    yield _spec(f"{prefix}q_a_layernorm.weight", config.q_lora_rank)
    yield _spec(f"{prefix}q_b_proj.weight", heads * config.qk_head_dim, config.q_lora_rank)
    yield _spec(f"{prefix}kv_a_proj_with_mqa.weight", latent + config.qk_rope_head_dim, hidden)
    yield _spec(f"{prefix}kv_a_layernorm.weight", latent)
    yield _spec(f"{prefix}kv_b_proj.weight", heads * expanded, latent)
    yield _spec(f"{prefix}o_proj.weight", hidden, heads * config.v_head_dim)


def _mixture(config: Dsv3Config, prefix: str) -> Iterator[TensorSpec]:
    hidden, width = config.hidden_size, config.moe_intermediate_size
    yield _spec(f"{prefix}gate.weight", config.n_routed_experts, hidden)
    yield _spec(f"{prefix}gate.e_score_correction_bias", config.n_routed_experts)
    for expert in range(config.n_routed_experts):
        yield from _swiglu(f"{prefix}experts.{expert}.", hidden, width)
    yield from _swiglu(f"{prefix}shared_experts.", hidden, width * config.n_shared_experts)


def _swiglu(prefix: str, hidden: int, width: int) -> Iterator[TensorSpec]:
    yield _spec(f"{prefix}gate_proj.weight", width, hidden)
    yield _spec(f"{prefix}up_proj.weight", width, hidden)
    yield _spec(f"{prefix}down_proj.weight", hidden, width)
