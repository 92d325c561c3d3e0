"""Architecture of a DeepSeek-V3 text model, read from a Hugging Face `config.json`.

Keys with one value that the forward pass can honour are literals, keys it does not know are
refused: a key that is read past in silence is a model that is not the one in the file.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from evalsuite.errors import UsageError

Size = Annotated[int, msgspec.Meta(ge=1)]
EvenSize = Annotated[int, msgspec.Meta(ge=2, multiple_of=2)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class RopeScaling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """YaRN as the published files have it, with the factor 1: it changes no angle and no scale.

    It is there because engines have a rotary embedding of their own for it, and that one is what
    the published model runs.
    """

    type: Literal["yarn"]
    factor: Annotated[float, msgspec.Meta(ge=1, le=1)]
    original_max_position_embeddings: Size
    beta_fast: Positive
    beta_slow: Positive
    mscale: Positive
    mscale_all_dim: Positive


class Dsv3Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One text model. Field names are those of the published `config.json`."""

    model_type: Literal["deepseek_v3"]
    architectures: tuple[Literal["DeepseekV3ForCausalLM"]]
    dtype: str
    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    moe_intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size
    n_routed_experts: Size
    n_shared_experts: Size
    num_experts_per_tok: Size
    n_group: Size
    topk_group: Size
    norm_topk_prob: bool
    routed_scaling_factor: Positive
    scoring_func: Literal["sigmoid"]
    topk_method: Literal["noaux_tc"]
    moe_router_dtype: Literal["float32"]
    moe_layer_freq: Literal[1]
    first_k_dense_replace: Annotated[int, msgspec.Meta(ge=0)]
    q_lora_rank: Size
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: EvenSize
    v_head_dim: Size
    rope_interleave: Literal[True]
    rope_theta: Positive
    rope_scaling: RopeScaling | None
    rms_norm_eps: Positive
    hidden_act: Literal["silu"]
    attention_bias: Literal[False]
    num_nextn_predict_layers: Literal[1]
    max_position_embeddings: Size
    initializer_range: float
    tie_word_embeddings: Literal[False]
    bos_token_id: int | None
    eos_token_id: int
    pad_token_id: int

    def __post_init__(self) -> None:
        per_group = self.n_routed_experts // self.n_group
        if self.n_routed_experts % self.n_group or per_group < 2:
            raise ValueError("n_group: every group needs the same number of experts, at least 2")
        if self.topk_group > self.n_group:
            raise ValueError("topk_group: more groups per token than groups")
        if self.num_experts_per_tok > self.topk_group * per_group:
            raise ValueError("num_experts_per_tok: more than the chosen groups hold")
        if self.num_key_value_heads != self.num_attention_heads:
            raise ValueError("num_key_value_heads: differs from num_attention_heads")

    @property
    def qk_head_dim(self) -> int:
        """Width of one head's query and key, rope part last."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def softmax_scale(self) -> float:
        """Scale of the attention scores; YaRN's own factor is 1 where nothing is scaled."""
        return float(self.qk_head_dim**-0.5)

    def is_dense(self, layer: int) -> bool:
        """Whether a layer has one wide FFN instead of experts."""
        return layer < self.first_k_dense_replace


def parse_config(raw: dict[str, Any], where: str) -> Dsv3Config:
    """Check a decoded configuration; `where` names its origin. Raises UsageError."""
    try:
        return msgspec.convert(raw, Dsv3Config)
    except msgspec.ValidationError as problem:
        raise UsageError(str(problem), file=where) from None
