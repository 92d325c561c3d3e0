"""The numeric suite: a kernel against float64, and against itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from evalsuite.kernel_check.loading import ForeignKernel, only
from evalsuite.kernel_check.outcome import Case, tried
from sparse_mla import launches, reference
from sparse_mla.capability import ALL_ROW_KINDS
from sparse_mla.compare import LSE, RESULT, difference
from sparse_mla.dispatch import Kernel, select
from sparse_mla.geometry import Geometry, row_width
from sparse_mla.launches import Launch

LENGTHS = "lengths on the device"
RERUNS = 20
REQUESTS = 2
PREFILL_ROWS = 7
QUERY_DTYPES = {"float32": torch.float32, "float16": torch.float16}


@dataclass(frozen=True)
class Call:
    """Arguments of one call; `options` are its keywords."""

    query: Tensor
    cache: Tensor
    indices: Tensor
    scale: float
    options: dict[str, Any]

    def run(self, kernel: Kernel) -> tuple[Tensor, Tensor]:
        """out and lse of a kernel."""
        return kernel.run(self.query, self.cache, self.indices, self.scale, **self.options)

    def rows(self, which: slice | Tensor) -> Call:
        """The same call for some of its rows."""
        return replace(self, query=self.query[which], indices=self.indices[which])


def random_call(geometry: Geometry, rows: int, device: torch.device, seed: int = 0) -> Call:
    """A call of this geometry with holes, indices out of range and one row without keys."""
    dice = torch.Generator().manual_seed(seed)
    slots = max(300, 3 * geometry.topk // 2)
    dtype = QUERY_DTYPES.get(geometry.cache_dtype, torch.bfloat16)
    if geometry.cache_dtype.startswith("fp8") and device.type == "cpu":
        dtype = torch.float32
    query = torch.randn(rows, geometry.heads, geometry.width, generator=dice).to(device, dtype)
    cache = torch.randn(slots, geometry.width, generator=dice).to(device)
    indices = torch.randint(-20, slots + 20, (rows, geometry.topk), generator=dice).to(device)
    if rows > 1:
        indices[rows // 2] = -1
    options: dict[str, Any] = {}
    if geometry.cache_dtype.startswith("fp8"):
        per_row = geometry.cache_dtype == "fp8_e4m3_row"
        largest = cache.abs().amax(1) if per_row else cache.abs().amax()
        options["cache_scale"] = (largest / 448).float()
        cache = (cache / options["cache_scale"].reshape(-1, 1)).to(torch.float8_e4m3fn)
    else:
        cache = cache.to(dtype)
    return Call(query, cache, indices, geometry.width**-0.5, options)


def compared(found: tuple[Tensor, Tensor], call: Call, geometry: Geometry) -> str | None:
    """What is wrong with a result; None where it agrees with float64."""
    rank = geometry.kv_lora_rank
    if found[0].dtype != call.query.dtype or found[1].dtype != torch.float32:
        return f"out is {found[0].dtype}, lse {found[1].dtype}"
    wanted = reference.attention(
        call.query, call.cache, call.indices, call.scale, kv_lora_rank=rank, **call.options
    )
    tolerance = RESULT[call.query.dtype]
    if geometry.cache_dtype.startswith("fp8") and call.query.dtype == torch.float32:
        # FP8 keys may be multiplied as float16.
        tolerance = RESULT[torch.float16]
    for name, one, other, limit in (
        ("out", found[0], wanted[0], tolerance),
        ("lse", found[1], wanted[1], LSE),
    ):
        problem = difference(one, other, limit)
        if problem:
            return f"{name}: {problem}"
    return None


def numeric_cases(
    kernel: ForeignKernel, geometry: Geometry, device: torch.device
) -> Iterator[Case]:
    """Cases of each kind of row, then those that hold for any; the kernel is in the table."""
    kinds = declared_kinds(kernel, geometry)
    for kind in kinds:
        yield tried("numbers", f"{kind} rows", partial(_kind, geometry, kind, device))
        yield tried("route", f"{kind} rows", partial(_route, kernel, geometry, kind, device))
    kind = "decode" if "decode" in kinds else kinds[0]
    chosen = chosen_kernel(only(geometry, kind))
    call = random_call(geometry, 6, device)
    for name, attempt in PROPERTIES.items():
        if name == LENGTHS and not kernel.takes_lengths:
            yield Case("numbers", name, "skipped", "the kernel takes no `lengths`")
        else:
            yield tried("numbers", name, partial(attempt, chosen, call, geometry))


def declared_kinds(kernel: ForeignKernel, geometry: Geometry) -> list[str]:
    """The kinds of rows that a kernel declares for a geometry, in order."""
    return [
        kind
        for kind in sorted(ALL_ROW_KINDS)
        if kernel.entry.refusal(only(geometry, kind), False) is None
    ]


def chosen_kernel(geometry: Geometry) -> Kernel:
    """The kernel that dispatch gives this geometry."""
    kernel = select(geometry)
    if kernel is None:
        raise ValueError(f"no rows in {geometry}")
    return kernel


def _rows_of(kind: str) -> int:
    width = row_width(kind)
    return REQUESTS * width if width else PREFILL_ROWS


def _kind(geometry: Geometry, kind: str, device: torch.device) -> str | None:
    call = random_call(geometry, _rows_of(kind), device)
    return compared(call.run(chosen_kernel(only(geometry, kind))), call, geometry)


def _route(
    kernel: ForeignKernel, geometry: Geometry, kind: str, device: torch.device
) -> str | None:
    call = random_call(geometry, _rows_of(kind), device)
    with launches.counting() as counts:
        call.run(chosen_kernel(only(geometry, kind)))
    wanted = {Launch(kernel.entry.name, kind.partition(":")[0], row_width(kind)): 1}
    return None if counts == wanted else f"launched {dict(counts)}, expected {wanted}"


def _differs(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], what: str) -> str | None:
    """Where two results are not bitwise the same."""
    for name, left, right in zip(("out", "lse"), one, other, strict=True):
        if not torch.equal(left, right):
            worst = float((left.double() - right.double()).abs().nan_to_num(math.inf).max())
            return f"{name} {what}: differs by up to {worst:.3g}"
    return None


def _empty_slot(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    named = int(call.indices[0].max().clamp(0, len(call.cache) - 1))
    told = replace(call, options={**call.options, "empty_index": named})
    return compared(told.run(kernel), told, geometry)


def _lengths(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    topk, device = geometry.topk, call.query.device
    lengths = torch.tensor(
        [0, 1, topk, topk // 2, topk // 3 + 1, 2][: len(call.query)],
        dtype=torch.int32,
        device=device,
    )
    told = replace(call, options={**call.options, "lengths": lengths})
    return compared(told.run(kernel), told, geometry)


def _poison(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    indices = torch.where(call.indices == 0, -1, call.indices)
    clean = replace(call, indices=indices)
    unused = torch.ones(len(call.cache), dtype=torch.bool, device=indices.device)
    unused[indices[(indices >= 0) & (indices < len(call.cache))]] = False
    cache = call.cache.float().clone()
    cache[unused] = math.nan
    poisoned = replace(clean, cache=cache.to(call.cache.dtype))
    return _differs(poisoned.run(kernel), clean.run(kernel), "with NaN in unselected slots")


def _order(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    shuffled = replace(call, indices=call.indices.flip(1).contiguous())
    return compared(shuffled.run(kernel), shuffled, geometry)


def _duplicates(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    twice = torch.arange(len(call.query), device=call.query.device).repeat_interleave(2)
    out, lse = call.rows(twice).run(kernel)
    return _differs((out[::2], lse[::2]), (out[1::2], lse[1::2]), "of one row given twice")


def _reruns(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    first = call.run(kernel)
    for number in range(1, RERUNS):
        problem = _differs(call.run(kernel), first, f"in rerun {number}")
        if problem:
            return problem
    return None


def _alone(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    for row in range(len(call.query)):
        alone = call.rows(slice(row, row + 1))
        problem = compared(alone.run(kernel), alone, geometry)
        if problem:
            return f"row {row} alone: {problem}"
    return None


def _layout(kernel: Kernel, call: Call, geometry: Geometry) -> str | None:
    query = call.query.transpose(0, 1).contiguous().transpose(0, 1)
    other = replace(call, query=query, indices=call.indices.to(torch.int32))
    return compared(other.run(kernel), other, geometry)


PROPERTIES: dict[str, Callable[[Kernel, Call, Geometry], str | None]] = {
    "a slot that stands for no key": _empty_slot,
    LENGTHS: _lengths,
    "NaN in unselected slots": _poison,
    "keys in another order": _order,
    "a row given twice": _duplicates,
    f"{RERUNS} reruns": _reruns,
    "each row alone": _alone,
    "heads first in memory, int32 indices": _layout,
}
