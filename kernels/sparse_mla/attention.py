"""Sparse MLA on the GPU: each query row over the cache rows that its index list names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache as remember
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparse_mla.architecture import architecture_of, cache_dtype_of
from sparse_mla.checks import check_call, report_indices
from sparse_mla.configs import (
    INTERPRETER_PROCESSORS,
    MMA_HEADS,
    Case,
    Config,
    choose_config,
    choose_split,
)

if TYPE_CHECKING:
    from sparse_mla.packing import Packing

LOG2E = 1.4426950408889634
ROPE_DIM = 64
# What the kernels in Gluon take: the value's width, and elements that rows are apart in steps of.
GLUON_RANK = 512
STEP = 16


@dataclass(frozen=True)
class _Problem:
    """One call after packing: `rows` lists of keys, `heads` heads on each."""

    case: Case
    query: Tensor
    indices: Tensor
    lengths: Tensor | None
    members: Tensor | None
    columns_per_split: int

    @property
    def splits(self) -> int:
        return -(-self.indices.shape[1] // self.columns_per_split)


def sparse_mla(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    scale: float,
    *,
    kv_lora_rank: int | None = None,
    cache_scale: Tensor | None = None,
    lengths: Tensor | None = None,
    empty_index: int = -1,
    split_size: int | None = None,
    packing: Packing | None = None,
    config: Config | None = None,
    out: Tensor | None = None,
    lse: Tensor | None = None,
    check_indices: bool = False,
) -> tuple[Tensor, Tensor]:
    """out [T, heads, kv_lora_rank] in query's type and lse [T, heads] float32, natural logarithm.

    query [T, heads, kv_lora_rank + rope]; cache [slots, kv_lora_rank + rope] in query's type, or
    float8_e4m3fn with `cache_scale` float32, one factor or [slots]. indices int32 or int64
    [T, topk]: -1, `empty_index` and everything outside 0 .. slots - 1 is no key, wherever it
    stands; a slot named twice counts twice. lengths int32 [T], on the device: only that many
    leading columns count. A row without keys gives 0 and -inf; no unselected row is read.
    `kv_lora_rank` defaults to the width, less 64 of rope where the width is no power of two.

    split_size: keys of one split (a multiple of the tile's keys), whatever the number of rows:
    a row's result is then bitwise the same in any batch. packing: a plan from
    `packing.pack_rows` for these indices. config: instead of the table's. out, lse: where to write.
    check_indices: report indices out of range by an error; it waits for the device, all else here
    does not and can be captured into a graph.

    Raises ValueError for tensors that disagree or are of a kind that the kernels do not take.
    """
    rank = kv_lora_rank or _default_rank(cache.shape[-1])
    check_call(query, cache, indices, rank, cache_scale, lengths, out, lse)
    if check_indices:
        report_indices(indices, len(cache), lengths, empty_index)
    if out is None:
        out = torch.empty(*query.shape[:2], rank, dtype=query.dtype, device=query.device)
    if lse is None:
        lse = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
    if query.shape[0] == 0:
        return out, lse
    if indices.shape[1] == 0:
        return out.zero_(), lse.fill_(float("-inf"))
    problem = _plan(query, cache, indices, rank, cache_scale, lengths, split_size, packing, config)
    _launch(problem, cache, cache_scale, scale, empty_index, out, lse)
    return out, lse


def _default_rank(width: int) -> int:
    return width if width & (width - 1) == 0 else width - ROPE_DIM


def _in_steps(tensor: Tensor) -> bool:
    """Whether all rows begin at multiples of STEP elements, which 16 bytes at a time need."""
    outer = tensor.stride()[:-1]
    return tensor.data_ptr() % 16 == 0 and all(stride % STEP == 0 for stride in outer)


@remember
def processors(device: torch.device) -> int:
    """Multiprocessors of a device."""
    if device.type == "cpu":
        return INTERPRETER_PROCESSORS
    count: int = torch.cuda.get_device_properties(device).multi_processor_count
    return count


def _plan(
    query: Tensor,
    cache: Tensor,
    indices: Tensor,
    rank: int,
    cache_scale: Tensor | None,
    lengths: Tensor | None,
    split_size: int | None,
    packing: Packing | None,
    config: Config | None,
) -> _Problem:
    members = None
    rows_each = 1
    if packing is not None:
        packing.check(query, indices)
        if split_size is not None:
            raise ValueError("split_size keeps rows apart from their company, packing joins them")
        rows_each, members = packing.rows, packing.members
        indices, lengths = packing.indices, packing.counts
        query = query.contiguous().view(len(indices), -1, query.shape[2])
    architecture, dtype = architecture_of(query.device), cache_dtype_of(cache, cache_scale)
    heads = query.shape[1]
    rows = len(query) if split_size is None else None
    gluon = rank == GLUON_RANK and _in_steps(query) and _in_steps(cache)
    config = config or choose_config(architecture, dtype, heads, rows, gluon)
    if config.kernel == "gluon" and not (architecture == "sm_90" and gluon):
        raise ValueError(
            f"{config.label} takes a cache of {GLUON_RANK} on sm_90 in rows that begin at "
            f"multiples of {STEP} elements, not {rank} on {architecture}, {cache.stride(0)} apart"
        )
    if architecture == "sm_90" and dtype.startswith("fp8") and config.block_h >= MMA_HEADS:
        # In Triton seen on an H200 under compute-sanitizer: NaN in rows 8 to 15 of most warps. The
        # one in Gluon is for BF16.
        raise ValueError(f"{config.label} cannot take an FP8 cache: use blocks of fewer heads")
    if split_size is None:
        topk = indices.shape[1]
        split_size = choose_split(len(query), heads, topk, processors(query.device), config)
    elif split_size < 1 or split_size % config.block_n:
        raise ValueError(f"split_size {split_size} is no multiple of the tile's {config.block_n}")
    split = split_size < indices.shape[1]
    rope = cache.shape[1] - rank
    case = Case(architecture, dtype, rank, rope, heads, rows_each, split, config)
    return _Problem(case, query, indices, lengths, members, split_size)


def empty_parts(rows: int, splits: int, heads: int, rank: int, like: Tensor) -> tuple[Tensor, ...]:
    """Uninitialised float32 buffers for the splits: outs and their base-2 lse."""
    outs = torch.empty(rows, splits, heads, rank, dtype=torch.float32, device=like.device)
    return outs, torch.empty(rows, splits, heads, dtype=torch.float32, device=like.device)


def _launch(
    problem: _Problem,
    cache: Tensor,
    cache_scale: Tensor | None,
    scale: float,
    empty_index: int,
    out: Tensor,
    lse: Tensor,
) -> None:
    case, query = problem.case, problem.query
    parts, part_lse = out, lse
    if case.split:
        parts, part_lse = empty_parts(
            len(query), problem.splits, case.heads, case.kv_lora_rank, query
        )
    # Here and not above: this module is imported where Triton is not installed.
    from sparse_mla import attention_kernels, specialised

    specialised.launch_attention(
        case, query, cache, problem.indices, problem.lengths, problem.members, cache_scale,
        parts, part_lse, scale * LOG2E, empty_index, problem.columns_per_split, problem.splits,
    )  # fmt: skip
    if case.split:
        early = attention_kernels.launches_early(case)
        attention_kernels.launch_merge(parts, part_lse, out, lse, early)
