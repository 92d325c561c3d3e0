"""FlashInfer's paged MLA with page size 1, its plan made on the host before the clock starts."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from sparse_problems import Problem
from torch import Tensor

from . import Absent

WORKSPACE_BYTES = 128 << 20


def load() -> Callable[[Problem], Callable[[], Tensor]]:
    """The selected slots are the page table; every column has to be a key."""
    try:
        wrapper_type = importlib.import_module("flashinfer.mla").BatchMLAPagedAttentionWrapper
    except (ImportError, OSError) as error:
        raise Absent(f"flashinfer_mla: {error}") from error

    def prepare(problem: Problem) -> Callable[[], Tensor]:
        if problem.cache.dtype != torch.bfloat16:
            raise Absent("flashinfer_mla: measured with a BF16 cache only")
        rows, heads, width = problem.query.shape
        topk, rank, device = problem.indices.shape[1], problem.rank, problem.query.device
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.int8, device=device)
        wrapper = wrapper_type(workspace, backend="fa3")
        starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        wrapper.plan(
            starts, starts * topk, problem.indices.flatten(),
            torch.full((rows,), topk, dtype=torch.int32, device=device),
            heads, rank, width - rank, 1, False, problem.scale,
            problem.query.dtype, problem.cache.dtype,
        )  # fmt: skip
        latent = problem.cache[:, :rank].unsqueeze(1)
        rope = problem.cache[:, rank:].unsqueeze(1)
        q_latent = problem.query[..., :rank].contiguous()
        q_rope = problem.query[..., rank:].contiguous()

        def launch() -> Tensor:
            out: Tensor = wrapper.run(q_latent, q_rope, latent, rope)
            return out

        return launch

    return prepare
