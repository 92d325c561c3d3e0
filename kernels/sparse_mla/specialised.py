"""Which attention kernel runs a case, its compile-time arguments, and its launch."""

from __future__ import annotations

from typing import Any

import triton
from torch import Tensor

from sparse_mla.attention_kernels import launches_early, partial_attention
from sparse_mla.configs import MMA_HEADS, Case


def specialised(
    case: Case, has_lengths: bool, has_scale: bool, dense: bool = True
) -> tuple[Any, dict[str, int | bool]]:
    """The kernel of a case and its compile-time arguments.

    `dense`: whether rows of the cache and heads of the query lie end to end.
    """
    config, fp8 = case.config, case.cache_dtype.startswith("fp8")
    constants = {
        "HEADS": case.heads,
        "HEADS_PER_ROW": case.heads // case.packed_rows,
        "ROPE": case.rope_dim,
        "BLOCK_H": config.block_h,
        "BLOCK_N": config.block_n,
        "HAS_LENGTHS": has_lengths,
        "PACKED": case.packed_rows > 1,
        "SPLIT": case.split,
        "DENSE": dense,
    }
    if config.kernel == "gluon" and config.block_h >= MMA_HEADS:
        from sparse_mla.gluon_kernels import hopper_attention

        return hopper_attention, constants | {"STAGES": config.num_stages}
    constants["HALF"] = fp8
    constants["SCALE"] = (2 if case.cache_dtype == "fp8_e4m3_row" else 1) if has_scale else 0
    if config.kernel == "gluon":
        from sparse_mla.gluon_few_heads import hopper_few_heads

        # FP8 tiles are half as large, and with rope one tile less fits into shared memory.
        stages = config.num_stages * (2 if fp8 else 1) - (1 if case.rope_dim else 0)
        return hopper_few_heads, constants | {"STAGES": stages}
    return partial_attention, constants | {
        "RANK": case.kv_lora_rank,
        "PTX": fp8 and case.architecture == "sm_90",
        # The interpreter's bfloat16 products are wrong.
        "UPCAST": case.architecture == "interpreter",
        "EARLY": launches_early(case),
    }


def launch_attention(
    case: Case,
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    lengths: Tensor | None,
    members: Tensor | None,
    factors: Tensor | None,
    parts: Tensor,
    part_lse: Tensor,
    scale2: float,
    empty: int,
    columns_per_split: int,
    splits: int,
) -> None:
    """Launch the kernel of a case for query [T, heads, D] and indices [T, topk]."""
    width = case.kv_lora_rank + case.rope_dim
    dense = query.stride(1) == width and cache.stride(0) == width
    kernel, constants = specialised(case, lengths is not None, factors is not None, dense)
    config = case.config
    # Gluon has no loops that the compiler pipelines.
    stages = {} if config.kernel == "gluon" else {"num_stages": config.num_stages}
    blocks = triton.cdiv(case.heads, config.block_h)
    kernel[(len(query) * blocks * splits,)](
        query, cache, indices,
        indices if lengths is None else lengths, indices if members is None else members,
        indices if factors is None else factors,
        parts, part_lse, scale2, indices.shape[1], len(cache), empty, columns_per_split, splits,
        query.stride(0), query.stride(1), cache.stride(0),
        **constants, num_warps=config.num_warps, **stages,
    )  # fmt: skip
