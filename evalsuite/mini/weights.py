"""Weights as the inference path uses them: fused by input, absorbed where that saves work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from evalsuite.mini.config import LINEAR, MiniConfig
from evalsuite.mini.model.mhc import SiteWeights
from evalsuite.mini.model.moe import MoeWeights, SwigluWeights


class LinearWeights(NamedTuple):
    """KDA. in_proj [3W + 2D + heads, H]: q, k, v, f_a, g_a, b. conv [3W, taps] float32."""

    in_proj: Tensor
    conv: Tensor
    f_b: Tensor
    g_b: Tensor
    rate: Tensor
    dt_bias: Tensor
    o_norm: Tensor
    o_proj: Tensor


class SparseWeights(NamedTuple):
    """MLA with its indexer.

    in_proj [q_lora + kv_lora + 2 index_dim + index_heads, H]: q_a, kv_a, index key, compress gate,
    head weights. up [heads * nope + index_heads * index_dim, q_lora]. key_up [heads, nope, kv_lora]
    and value_up [heads, kv_lora, v] are the two halves of kv_b in absorbed form.
    """

    in_proj: Tensor
    q_norm: Tensor
    kv_norm: Tensor
    up: Tensor
    key_up: Tensor
    value_up: Tensor
    o_proj: Tensor
    k_norm_weight: Tensor
    k_norm_bias: Tensor
    ape: Tensor


class LayerWeights(NamedTuple):
    """One decoder layer; `sites` (attention, FFN) is None for the MTP layer, which has no mHC."""

    sites: tuple[SiteWeights, SiteWeights] | None
    input_norm: Tensor
    post_norm: Tensor
    attention: LinearWeights | SparseWeights
    ffn: MoeWeights | SwigluWeights


class MtpWeights(NamedTuple):
    """The MTP layer: enorm and hnorm [H], eh_proj [H, 2H], the block, and its head's norm [H]."""

    enorm: Tensor
    hnorm: Tensor
    eh_proj: Tensor
    block: LayerWeights
    head_norm: Tensor


class Weights(NamedTuple):
    """A whole model. `mtp` is None where the checkpoint has no MTP layer."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor
    mtp: MtpWeights | None


def fuse(tensors: Mapping[str, Tensor], config: MiniConfig) -> Weights:
    """Build the fused weights from tensors under their published names, all on one device."""
    layers = tuple(_layer(tensors, config, i) for i in range(config.num_hidden_layers))
    return Weights(
        tensors["model.embed_tokens.weight"],
        layers,
        tensors["model.norm.weight"],
        tensors["lm_head.weight"],
        _mtp(tensors, config) if config.num_nextn_predict_layers else None,
    )


def _layer(tensors: Mapping[str, Tensor], config: MiniConfig, index: int) -> LayerWeights:
    prefix = f"model.layers.{index}."
    attention, ffn = (
        SiteWeights(*(tensors[f"{prefix}hc_{site}_{part}"] for part in ("fn", "base", "scale")))
        for site in ("attn", "ffn")
    )
    linear = config.layer_types[index] == LINEAR
    return LayerWeights(
        (attention, ffn),
        tensors[f"{prefix}input_layernorm.weight"],
        tensors[f"{prefix}post_attention_layernorm.weight"],
        (_linear if linear else _sparse)(tensors, config, f"{prefix}self_attn."),
        _ffn(tensors, config, f"{prefix}mlp.", config.mlp_layer_types[index]),
    )


def _mtp(tensors: Mapping[str, Tensor], config: MiniConfig) -> MtpWeights:
    prefix = f"model.layers.{config.num_hidden_layers}."
    block = LayerWeights(
        None,
        tensors[f"{prefix}input_layernorm.weight"],
        tensors[f"{prefix}post_attention_layernorm.weight"],
        _sparse(tensors, config, f"{prefix}self_attn."),
        _ffn(tensors, config, f"{prefix}mlp.", config.mlp_layer_types[-1]),
    )
    return MtpWeights(
        tensors[f"{prefix}enorm.weight"],
        tensors[f"{prefix}hnorm.weight"],
        tensors[f"{prefix}eh_proj.weight"],
        block,
        tensors[f"{prefix}shared_head.norm.weight"],
    )


def _linear(tensors: Mapping[str, Tensor], config: MiniConfig, prefix: str) -> LinearWeights:
    inputs = ("q_proj", "k_proj", "v_proj", "f_a_proj", "g_a_proj", "b_proj")
    return LinearWeights(
        torch.cat([tensors[f"{prefix}{name}.weight"] for name in inputs]),
        torch.cat([tensors[f"{prefix}{n}_conv1d.weight"] for n in "qkv"]).squeeze(1).float(),
        tensors[f"{prefix}f_b_proj.weight"],
        tensors[f"{prefix}g_b_proj.weight"],
        tensors[f"{prefix}A_log"].float().exp().unsqueeze(-1),
        tensors[f"{prefix}dt_bias"].float(),
        tensors[f"{prefix}o_norm.weight"],
        tensors[f"{prefix}o_proj.weight"],
    )


def _sparse(tensors: Mapping[str, Tensor], config: MiniConfig, prefix: str) -> SparseWeights:
    index = f"{prefix}indexer."
    inputs = [
        tensors[f"{prefix}q_a_proj.weight"],
        tensors[f"{prefix}kv_a_proj_with_mqa.weight"],
        tensors[f"{index}wk.weight"],
        tensors[f"{index}index_kpool_compress_gate"],
        tensors[f"{index}weights_proj.weight"],
    ]
    expanded = tensors[f"{prefix}kv_b_proj.weight"].unflatten(0, (config.num_attention_heads, -1))
    key_up, value_up = expanded.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)
    return SparseWeights(
        torch.cat(inputs),
        tensors[f"{prefix}q_a_layernorm.weight"],
        tensors[f"{prefix}kv_a_layernorm.weight"],
        torch.cat([tensors[f"{prefix}q_b_proj.weight"], tensors[f"{index}wq_b.weight"]]),
        key_up.contiguous(),
        value_up.transpose(1, 2).contiguous(),
        tensors[f"{prefix}o_proj.weight"],
        tensors[f"{index}k_norm.weight"],
        tensors[f"{index}k_norm.bias"],
        tensors[f"{index}index_kpool_compress_ape"].float(),
    )


def _ffn(
    tensors: Mapping[str, Tensor], config: MiniConfig, prefix: str, kind: str
) -> MoeWeights | SwigluWeights:
    if kind == "dense":
        return _swiglu(tensors, prefix)
    experts = [_swiglu(tensors, f"{prefix}experts.{e}.") for e in range(config.n_routed_experts)]
    shared = _swiglu(tensors, f"{prefix}shared_experts.") if config.n_shared_experts else None
    return MoeWeights(
        tensors[f"{prefix}gate.weight"],
        tensors[f"{prefix}gate.e_score_correction_bias"],
        torch.stack([expert.gate_up for expert in experts]),
        torch.stack([expert.down for expert in experts]),
        shared,
    )


def _swiglu(tensors: Mapping[str, Tensor], prefix: str) -> SwigluWeights:
    gate, up = tensors[f"{prefix}gate_proj.weight"], tensors[f"{prefix}up_proj.weight"]
    return SwigluWeights(torch.cat([gate, up]), tensors[f"{prefix}down_proj.weight"])
