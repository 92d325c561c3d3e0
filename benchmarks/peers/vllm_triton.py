"""vLLM's Triton kernels for ragged sparse MLA over a BF16 cache.

They come out of the file rocm_aiter_mla_sparse.py of an installed vLLM, or of the copy that
VLLM_SPARSE_MLA names; that file imports half of vLLM, so that only the functions are taken.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch
from sparse_problems import Problem
from torch import Tensor

from . import Absent
from .lifting import lift

FILE = "v1/attention/ops/rocm_aiter_mla_sparse.py"
SINGLE = "_rocm_sparse_attn_prefill_ragged_triton"
SPLIT = "_rocm_sparse_attn_decode_ragged_bf16_triton"
COUNT = "rocm_sparse_decode_bf16_num_splits"
HEADER = """\
import functools
import math

import torch
import triton
import triton.language as tl

_ON_GFX942 = _ON_GFX950 = False
"""


def load() -> Callable[[Problem], Callable[[], Tensor]]:
    """Split as vLLM would split it: with one split its single-pass kernel runs."""
    module = _module()

    def prepare(problem: Problem) -> Callable[[], Tensor]:
        if problem.cache.dtype != torch.bfloat16:
            raise Absent("vllm_triton: its FP8 cache has another layout")
        if problem.query.shape[2] != problem.rank:
            raise Absent("vllm_triton: its ragged kernels are for rows without rope")
        rows, heads, _ = problem.query.shape
        topk = problem.indices.shape[1]
        indptr = torch.arange(rows + 1, dtype=torch.int32, device=problem.query.device) * topk
        flat = problem.indices.flatten()
        call = (problem.query, problem.cache, flat, indptr, problem.scale, None, problem.rank)
        rope = problem.query.shape[2] - problem.rank
        splits = getattr(module, COUNT)(rows, heads, topk)
        if splits > 1:
            return lambda: getattr(module, SPLIT)(*call, rope, splits)
        return lambda: getattr(module, SINGLE)(*call, rope)

    return prepare


def _module() -> ModuleType:
    named = os.environ.get("VLLM_SPARSE_MLA")
    if named:
        return lift(Path(named), {SINGLE, SPLIT, COUNT}, HEADER)
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        raise Absent("vllm_triton: vllm is not installed and VLLM_SPARSE_MLA names no copy")
    return lift(Path(spec.submodule_search_locations[0]) / FILE, {SINGLE, SPLIT, COUNT}, HEADER)
