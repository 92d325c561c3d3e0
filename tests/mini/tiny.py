"""Random-weight models of the miniature's architecture, small enough for property tests."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor

from evalsuite.mini.config import LINEAR, SPARSE, MiniConfig
from evalsuite.mini.engine import Session, SessionOptions
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.names import TensorSpec, tensor_specs
from evalsuite.mini.sequence import GenerationRequest
from evalsuite.mini.weights import fuse

VOCABULARY = 96
EOS = 0
PIECES = ("ab", "bc", "abc", "ĊĊ", "Q:", ":")

TINY = MiniConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=64,
    moe_intermediate_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    n_routed_experts=4,
    n_shared_experts=1,
    num_experts_per_tok=2,
    routed_scaling_factor=2.5,
    norm_topk_prob=True,
    q_lora_rank=16,
    kv_lora_rank=64,
    qk_nope_head_dim=16,
    v_head_dim=16,
    index_n_heads=16,
    index_head_dim=8,
    index_topk=16,
    index_kpool=4,
    linear_num_heads=2,
    linear_head_dim=16,
    linear_conv_kernel_dim=4,
    linear_lower_bound=-5.0,
    hc_mult=2,
    hc_eps=1e-6,
    hc_sinkhorn_iters=3,
    rms_norm_eps=1e-5,
    swiglu_limit=10.0,
    layer_types=(LINEAR, SPARSE, LINEAR),
    mlp_layer_types=("dense", "sparse", "sparse"),
    num_nextn_predict_layers=1,
    index_share_for_mtp_iteration=True,
    max_position_embeddings=512,
    eos_token_id=EOS,
)


def random_tensor(spec: TensorSpec, dice: torch.Generator) -> Tensor:
    """Values that keep activations near 1: norms about 1, matrices scaled by their inputs."""
    noise = torch.randn(spec.shape, generator=dice)
    if spec.name.endswith(("norm.weight", "layernorm.weight", "_scale")):
        return 1.0 + 0.1 * noise
    if spec.name.endswith("embed_tokens.weight"):
        return noise
    if len(spec.shape) == 1 or spec.name.endswith("_ape"):
        return 0.3 * noise
    return noise / math.sqrt(spec.shape[-1])


@functools.cache
def tiny_model(seed: int = 0, config: MiniConfig = TINY, **changes: Any) -> Model:
    """A model with random weights; `changes` are fields of the configuration."""
    config = replace(config, **changes)
    dice = torch.Generator().manual_seed(seed)
    tensors = {spec.name: random_tensor(spec, dice) for spec in tensor_specs(config)}
    return Model(config, fuse(tensors, config))


@functools.cache
def tiny_tokenizer() -> Tokenizer:
    """Id 0 is the end token; the others are single letters and a few longer pieces."""
    letters = [chr(c) for c in range(33, 127) if chr(c) not in PIECES]
    pieces = [*PIECES, *letters][: VOCABULARY - 1]
    tokenizer = Tokenizer(WordLevel({"<eos>": EOS} | {p: i for i, p in enumerate(pieces, 1)}))
    tokenizer.add_special_tokens(["<eos>"])
    return tokenizer


def tiny_session(model: Model | None = None, **options: Any) -> Session:
    """A session over a tiny model with small sizes."""
    sizes = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 128}
    model = model or tiny_model()
    return Session(model, tiny_tokenizer(), SessionOptions(**{**sizes, **options}))


def request(name: str, prompt: list[int], max_tokens: int, *stop: bytes) -> GenerationRequest:
    """A request by its prompt's ids."""
    return GenerationRequest(name, tuple(prompt), max_tokens, stop)


def prompt(length: int, seed: int = 0) -> list[int]:
    """Random ids without the end token."""
    dice = torch.Generator().manual_seed(1000 * seed + length)
    return torch.randint(1, VOCABULARY, (length,), generator=dice).tolist()
