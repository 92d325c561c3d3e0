"""Architecture of a GLM-5.3-Flash text model, read from a Hugging Face `config.json`.

The published configuration spells its linear-attention fields as a nested
`linear_attn_config`; transformers flattens them. Both spellings are accepted, everything else
that the model does not understand is refused: a key that is read past in silence is a model
that is not the one in the file.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalsuite.errors import UsageError

LINEAR = "linear_attention"
SPARSE = "deepseek_sparse_attention"
SPARSE_SPELLINGS = frozenset({SPARSE, "indexed_attention", "full_attention"})
# A cache block is a multiple of 16 tokens; its first two pool slots are reserved in block 0.
MAX_KPOOL = 8
MODEL_TYPES = frozenset({"glm5_next", "glm5_next_text"})


@dataclass(frozen=True, slots=True)
class MiniConfig:
    """One text model. Field names are those of the published `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    norm_topk_prob: bool
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    v_head_dim: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    index_kpool: int
    linear_num_heads: int
    linear_head_dim: int
    linear_conv_kernel_dim: int
    linear_lower_bound: float
    hc_mult: int
    hc_eps: float
    hc_sinkhorn_iters: int
    rms_norm_eps: float
    swiglu_limit: float
    layer_types: tuple[str, ...]
    mlp_layer_types: tuple[str, ...]
    num_nextn_predict_layers: int
    index_share_for_mtp_iteration: bool
    max_position_embeddings: int
    eos_token_id: int | None

    @property
    def linear_dim(self) -> int:
        """Width of one of q, k or v of a linear-attention layer."""
        return self.linear_num_heads * self.linear_head_dim

    @property
    def index_width(self) -> int:
        """Entries of one row of selected keys: top-k tokens and the longest live tail."""
        return self.index_topk + self.index_kpool - 1

    @property
    def softmax_scale(self) -> float:
        """Scale of the attention scores; the absorbed form keeps that of the expanded one."""
        return float(self.qk_nope_head_dim**-0.5)

    def layers_of(self, kind: str) -> list[int]:
        """Indices of the base layers of one attention kind, in order."""
        return [i for i, layer_type in enumerate(self.layer_types) if layer_type == kind]


_INTEGERS = [
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
]
_FLOATS = ["routed_scaling_factor", "hc_eps", "rms_norm_eps", "swiglu_limit"]
_BOOLS = ("norm_topk_prob", "index_share_for_mtp_iteration")
_LINEAR_FIELDS = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
    "gate_lower_bound": "linear_lower_bound",
}
# Keys with exactly one value this model can honour.
_FIXED: dict[str, Any] = {
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
_INERT = frozenset(
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


def load_config(path: Path) -> MiniConfig:
    """Read and check one `config.json`.

    Raises UsageError naming the file and the field.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; a model folder holds config.json") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(raw, dict):
        raise UsageError(f"{path}: expected one JSON object, found {type(raw).__name__}")
    return parse_config(raw, str(path))


def parse_config(raw: dict[str, Any], where: str) -> MiniConfig:
    """Check a decoded configuration; `where` names its origin in errors."""
    model_type = raw.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise UsageError(
            f"{where}: field model_type: {model_type!r} is another architecture; "
            f"the miniature's engine runs {' or '.join(sorted(MODEL_TYPES))}"
        )
    values = _flatten_linear(raw, where)
    _refuse_unknown(values, where)
    for key, only in _FIXED.items():
        if key in values and values[key] != only:
            raise UsageError(
                f"{where}: field {key}: {values[key]!r} is not supported, only {only!r}"
            )
    fields: dict[str, Any] = {key: _integer(values, key, where) for key in _INTEGERS}
    for key in ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"):
        fields[key] = _integer(values, key, where)
    for key in (*_FLOATS, "linear_lower_bound"):
        fields[key] = _number(values, key, where)
    for key in _BOOLS:
        if not isinstance(values.get(key), bool):
            raise UsageError(
                f"{where}: field {key}: expected true or false, found {values.get(key)!r}"
            )
        fields[key] = values[key]
    fields["layer_types"] = _layer_types(values, fields["num_hidden_layers"], where)
    fields["mlp_layer_types"] = _mlp_types(values, fields["num_hidden_layers"], where)
    fields["eos_token_id"] = _end_token(values, fields["vocab_size"], where)
    config = MiniConfig(**fields)
    _check_shapes(config, values, where)
    return config


def _flatten_linear(raw: dict[str, Any], where: str) -> dict[str, Any]:
    values = dict(raw)
    nested = values.get("linear_attn_config", {})
    if not isinstance(nested, dict):
        raise UsageError(f"{where}: field linear_attn_config: expected an object")
    for key, value in nested.items():
        if key not in _LINEAR_FIELDS:
            raise UsageError(f"{where}: field linear_attn_config.{key}: unknown key")
        flat = _LINEAR_FIELDS[key]
        if values.setdefault(flat, value) != value:
            raise UsageError(f"{where}: fields linear_attn_config.{key} and {flat} disagree")
    return values


def _refuse_unknown(values: dict[str, Any], where: str) -> None:
    known = {*_INTEGERS, *_FLOATS, *_BOOLS, *_FIXED, *_INERT, *_LINEAR_FIELDS.values()}
    unknown = sorted(set(values) - known)
    if unknown:
        raise UsageError(f"{where}: field {unknown[0]}: unknown key; the model would ignore it")


def _integer(values: dict[str, Any], key: str, where: str) -> int:
    value = values.get(key)
    minimum = 0 if key in ("num_nextn_predict_layers", "n_shared_experts") else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UsageError(f"{where}: field {key}: expected an integer >= {minimum}, found {value!r}")
    return value


def _number(values: dict[str, Any], key: str, where: str) -> float:
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{where}: field {key}: expected a finite number, found {value!r}")
    if key in _FLOATS and value <= 0:
        raise UsageError(f"{where}: field {key}: expected a number above 0, found {value!r}")
    return float(value)


def _end_token(values: dict[str, Any], vocab_size: int, where: str) -> int | None:
    value = values.get("eos_token_id")
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < vocab_size:
        raise UsageError(
            f"{where}: field eos_token_id: expected one id in 0 .. {vocab_size - 1}, "
            f"found {value!r}"
        )
    return value


def _names(values: dict[str, Any], key: str, where: str) -> list[str] | None:
    listed = values.get(key)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise UsageError(f"{where}: field {key}: expected a list of names")
    return listed


def _layer_types(values: dict[str, Any], layers: int, where: str) -> tuple[str, ...]:
    listed = _names(values, "layer_types", where)
    if listed is None or len(listed) != layers:
        raise UsageError(f"{where}: field layer_types: expected a list of {layers} names")
    for name in listed:
        if name != LINEAR and name not in SPARSE_SPELLINGS:
            raise UsageError(f"{where}: field layer_types: {name!r} is no known attention kind")
    return tuple(LINEAR if name == LINEAR else SPARSE for name in listed)


def _mlp_types(values: dict[str, Any], layers: int, where: str) -> tuple[str, ...]:
    listed = _names(values, "mlp_layer_types", where)
    if listed is None and type(values.get("first_k_dense_replace")) is int:
        dense = max(0, min(values["first_k_dense_replace"], layers))
        listed = ["dense"] * dense + ["sparse"] * (layers - dense)
    if listed is None or len(listed) != layers or set(listed) - {"dense", "sparse"}:
        raise UsageError(
            f"{where}: field mlp_layer_types: expected {layers} of 'dense' or 'sparse'"
        )
    return tuple(listed)


def _check_shapes(config: MiniConfig, values: dict[str, Any], where: str) -> None:
    problems = {
        "index_topk": config.index_topk % config.index_kpool != 0
        and f"{config.index_topk} is not a multiple of index_kpool {config.index_kpool}",
        "index_kpool": MAX_KPOOL % config.index_kpool != 0
        and f"{config.index_kpool} does not divide {MAX_KPOOL}: pools would straddle cache blocks",
        "num_experts_per_tok": config.num_experts_per_tok > config.n_routed_experts
        and "more experts per token than experts",
        "num_nextn_predict_layers": config.num_nextn_predict_layers > 1
        and "more than one MTP layer",
        "num_key_value_heads": values.get("num_key_value_heads", config.num_attention_heads)
        != config.num_attention_heads
        and "differs from num_attention_heads",
        "linear_lower_bound": not -5.0 <= config.linear_lower_bound < 0.0
        and "outside [-5, 0): the chunked form of the delta rule would overflow",
        "indexer_types": any(k != "full" for k in _names(values, "indexer_types", where) or [])
        and "only 'full' is supported",
        "quantization_config": values.get("quantization_config") is not None
        and "quantised weights are not supported",
    }
    for field, problem in problems.items():
        if problem:
            raise UsageError(f"{where}: field {field}: {problem}")
