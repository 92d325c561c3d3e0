"""Architecture of a GLM-5.3-Flash text model, read from a Hugging Face `config.json`.

The published configuration spells its linear-attention fields as a nested
`linear_attn_config`; transformers flattens them. Both spellings are accepted, everything else
that the model does not understand is refused: a key that is read past in silence is a model
that is not the one in the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalsuite.errors import UsageError
from evalsuite.mini import fields
from evalsuite.mini.fields import LINEAR, SPARSE

__all__ = ["LINEAR", "SPARSE", "MiniConfig", "load_config", "parse_config"]

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
    values = fields.flatten_linear(raw, where)
    fields.refuse_unknown(values, where)
    fields.refuse_unsupported(values, where)
    found: dict[str, Any] = {key: fields.integer(values, key, where) for key in fields.INTEGERS}
    found |= {key: fields.number(values, key, where) for key in fields.FLOATS}
    found |= {key: fields.boolean(values, key, where) for key in fields.BOOLS}
    layers = found["num_hidden_layers"]
    found["layer_types"] = fields.layer_types(values, layers, where)
    found["mlp_layer_types"] = fields.mlp_types(values, layers, where)
    found["eos_token_id"] = fields.end_token(values, found["vocab_size"], where)
    config = MiniConfig(**found)
    _check_shapes(config, values, where)
    return config


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
        "indexer_types": any(
            k != "full" for k in fields.names(values, "indexer_types", where) or []
        )
        and "only 'full' is supported",
        "quantization_config": values.get("quantization_config") is not None
        and "quantised weights are not supported",
    }
    for field, problem in problems.items():
        if problem:
            raise UsageError(f"{where}: field {field}: {problem}")
