"""FlashMLA's sparse forward for Hopper, as the package sgl-flash-mla keeps it (use_legacy)."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from sparse_problems import Problem
from torch import Tensor

from . import Absent

PADDED_HEADS = 64
TOPK_MULTIPLE = 128


def load() -> Callable[[Problem], Callable[[], Tensor]]:
    """Heads are padded to 64 and index columns to a multiple of 128, before the clock starts."""
    try:
        forward = importlib.import_module("flash_mla").flash_mla_sparse_fwd
    except (ImportError, OSError) as error:
        raise Absent(f"flash_mla: {error}") from error

    def prepare(problem: Problem) -> Callable[[], Tensor]:
        if problem.cache.dtype != torch.bfloat16:
            raise Absent("flash_mla: its FP8 cache has another layout")
        rows, heads, width = problem.query.shape
        query = problem.query.new_zeros(rows, -(-heads // PADDED_HEADS) * PADDED_HEADS, width)
        query[:, :heads] = problem.query
        topk = problem.indices.shape[1]
        columns = -(-topk // TOPK_MULTIPLE) * TOPK_MULTIPLE
        indices = problem.indices.new_full((rows, 1, columns), -1)
        indices[:, 0, :topk] = problem.indices
        cache = problem.cache.unsqueeze(1)

        def launch() -> Tensor:
            out: Tensor = forward(query, cache, indices, problem.scale, use_legacy=True)[0]
            return out[:, :heads]

        return launch

    return prepare
