"""Fields of a `config.json`: which there are, what each may hold, and how one is read.

A reader takes the decoded object and raises UsageError naming file and field.
"""

from __future__ import annotations

import math
from typing import Any

from evalsuite.errors import UsageError

LINEAR = "linear_attention"
SPARSE = "deepseek_sparse_attention"
SPARSE_SPELLINGS = frozenset({SPARSE, "indexed_attention", "full_attention"})

INTEGERS = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "v_head_dim",
    "index_n_heads",
    "index_head_dim",
    "index_topk",
    "index_kpool",
    "hc_mult",
    "hc_sinkhorn_iters",
    "num_nextn_predict_layers",
    "max_position_embeddings",
    "linear_num_heads",
    "linear_head_dim",
    "linear_conv_kernel_dim",
]
FLOATS = ("routed_scaling_factor", "hc_eps", "rms_norm_eps", "swiglu_limit", "linear_lower_bound")
BOOLS = ("norm_topk_prob", "index_share_for_mtp_iteration")
LINEAR_FIELDS = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
    "gate_lower_bound": "linear_lower_bound",
}
# Keys with exactly one value this model can honour.
FIXED: dict[str, Any] = {
    "qk_rope_head_dim": 0,
    "mla_use_nope": True,
    "mhc": True,
    "index_kpool_always_select_tail": True,
    "index_kpool_compress": True,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "n_group": 1,
    "topk_group": 1,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_router_dtype": "float32",
    "head_dim": 0,
}
# Keys that describe the file or its training and change nothing in the forward pass.
INERT = frozenset(
    [
        "model_type",
        "architectures",
        "dtype",
        "torch_dtype",
        "transformers_version",
        "bos_token_id",
        "pad_token_id",
        "eos_token_id",
        "use_cache",
        "initializer_range",
        "attention_dropout",
        "num_key_value_heads",
        "indexer_types",
        "indexer_rope_interleave",
        "linear_attn_config",
        "layer_types",
        "mlp_layer_types",
        "first_k_dense_replace",
        "output_router_logits",
        "router_aux_loss_coef",
        "quantization_config",
    ]
)


def flatten_linear(raw: dict[str, Any], where: str) -> dict[str, Any]:
    """The object with the nested spelling of the linear-attention fields made flat."""
    values = dict(raw)
    nested = values.get("linear_attn_config", {})
    if not isinstance(nested, dict):
        raise UsageError(f"{where}: field linear_attn_config: expected an object")
    for key, value in nested.items():
        if key not in LINEAR_FIELDS:
            raise UsageError(f"{where}: field linear_attn_config.{key}: unknown key")
        flat = LINEAR_FIELDS[key]
        if values.setdefault(flat, value) != value:
            raise UsageError(f"{where}: fields linear_attn_config.{key} and {flat} disagree")
    return values


def refuse_unknown(values: dict[str, Any], where: str) -> None:
    """Raise UsageError for the first key that the model does not know."""
    known = {*INTEGERS, *FLOATS, *BOOLS, *FIXED, *INERT, *LINEAR_FIELDS.values()}
    unknown = sorted(set(values) - known)
    if unknown:
        raise UsageError(f"{where}: field {unknown[0]}: unknown key; the model would ignore it")


def refuse_unsupported(values: dict[str, Any], where: str) -> None:
    """Raise UsageError for the first key with a value that the model cannot honour."""
    for key, only in FIXED.items():
        if key in values and values[key] != only:
            raise UsageError(
                f"{where}: field {key}: {values[key]!r} is not supported, only {only!r}"
            )


def boolean(values: dict[str, Any], key: str, where: str) -> bool:
    """A truth value."""
    value = values.get(key)
    if not isinstance(value, bool):
        raise UsageError(f"{where}: field {key}: expected true or false, found {value!r}")
    return value


def integer(values: dict[str, Any], key: str, where: str) -> int:
    """A size: an integer of at least 1, or 0 where a part may be absent."""
    value = values.get(key)
    minimum = 0 if key in ("num_nextn_predict_layers", "n_shared_experts") else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UsageError(f"{where}: field {key}: expected an integer >= {minimum}, found {value!r}")
    return value


def number(values: dict[str, Any], key: str, where: str) -> float:
    """A finite number, above 0 except for the decay's bound."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{where}: field {key}: expected a finite number, found {value!r}")
    if key != "linear_lower_bound" and value <= 0:
        raise UsageError(f"{where}: field {key}: expected a number above 0, found {value!r}")
    return float(value)


def end_token(values: dict[str, Any], vocab_size: int, where: str) -> int | None:
    """The id that ends a text, within the vocabulary, or None."""
    value = values.get("eos_token_id")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < vocab_size:
        raise UsageError(
            f"{where}: field eos_token_id: expected one id in 0 .. {vocab_size - 1}, "
            f"found {value!r}"
        )
    return value


def names(values: dict[str, Any], key: str, where: str) -> list[str] | None:
    """A list of names, or None where the key is absent."""
    listed = values.get(key)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise UsageError(f"{where}: field {key}: expected a list of names")
    return listed


def layer_types(values: dict[str, Any], layers: int, where: str) -> tuple[str, ...]:
    """The attention kind of every layer, in one spelling."""
    listed = names(values, "layer_types", where)
    if listed is None or len(listed) != layers:
        raise UsageError(f"{where}: field layer_types: expected a list of {layers} names")
    for name in listed:
        if name != LINEAR and name not in SPARSE_SPELLINGS:
            raise UsageError(f"{where}: field layer_types: {name!r} is no known attention kind")
    return tuple(LINEAR if name == LINEAR else SPARSE for name in listed)


def mlp_types(values: dict[str, Any], layers: int, where: str) -> tuple[str, ...]:
    """The FFN kind of every layer, listed or by `first_k_dense_replace`."""
    listed = names(values, "mlp_layer_types", where)
    if listed is None and type(values.get("first_k_dense_replace")) is int:
        dense = max(0, min(values["first_k_dense_replace"], layers))
        listed = ["dense"] * dense + ["sparse"] * (layers - dense)
    if listed is None or len(listed) != layers or set(listed) - {"dense", "sparse"}:
        raise UsageError(
            f"{where}: field mlp_layer_types: expected {layers} of 'dense' or 'sparse'"
        )
    return tuple(listed)
