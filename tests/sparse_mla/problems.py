"""Small calls of sparse MLA for the interpreter, and how their results are compared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sparse_mla.compare import LSE, RESULT, Tolerance, difference
from sparse_mla.reference import attention

RANK = 32
SCALE = 0.21
# The keys of an FP8 cache are multiplied by weights of float16, whatever the query's type.
FP8_RESULT = Tolerance(2e-3, 4e-3, 1e-6)
FP8_LSE = Tolerance(2e-3, 4e-3, 1e-6)


@dataclass(frozen=True)
class Call:
    """The tensors of one call."""

    query: Tensor
    cache: Tensor
    indices: Tensor
    cache_scale: Tensor | None = None
    lengths: Tensor | None = None

    def run(self, **options: Any) -> tuple[Tensor, Tensor]:
        """Our kernel's result."""
        from sparse_mla.attention import sparse_mla

        return sparse_mla(
            self.query, self.cache, self.indices, SCALE, kv_lora_rank=RANK,
            cache_scale=self.cache_scale, lengths=self.lengths, **options,
        )  # fmt: skip

    def check(self, found: tuple[Tensor, Tensor], empty_index: int = -1) -> None:
        """Compare with the float64 reference."""
        out, lse = attention(
            self.query, self.cache, self.indices, SCALE, kv_lora_rank=RANK,
            cache_scale=self.cache_scale, lengths=self.lengths, empty_index=empty_index,
        )  # fmt: skip
        fp8 = self.cache.dtype == torch.float8_e4m3fn
        wrong = difference(found[0], out, FP8_RESULT if fp8 else RESULT[self.query.dtype])
        assert wrong is None, f"out: {wrong}"
        half = self.query.dtype == torch.float16
        wrong = difference(found[1], lse, FP8_LSE if fp8 or half else LSE)
        assert wrong is None, f"lse: {wrong}"

    def rows(self, *numbers: int) -> Call:
        """The same call for some of its rows."""
        at = torch.tensor(numbers)
        lengths = None if self.lengths is None else self.lengths[at]
        return replace(self, query=self.query[at], indices=self.indices[at], lengths=lengths)


def make(
    rows: int = 3,
    heads: int = 4,
    topk: int = 50,
    *,
    slots: int = 200,
    rope: int = 0,
    dtype: torch.dtype = torch.float32,
    fp8: str = "",
    seed: int = 0,
) -> Call:
    """A call with holes and wild indices among its keys. fp8: "", "tensor" or "row" scales."""
    torch.manual_seed(seed)
    query = torch.randn(rows, heads, RANK + rope).to(dtype)
    cache = torch.randn(slots, RANK + rope) * (0.5 + torch.rand(slots, 1))
    indices = torch.randint(-1, slots, (rows, topk), dtype=torch.int32)
    if rows and topk > 9:
        indices[0, 3:5] = slots
        indices[-1, 5:9] = torch.iinfo(torch.int32).min
    if not fp8:
        return Call(query, cache.to(dtype), indices)
    largest = cache.abs().amax() if fp8 == "tensor" else cache.abs().amax(1)
    scale = largest / 448.0
    cache = cache / (scale if fp8 == "tensor" else scale.unsqueeze(1))
    return Call(query, cache.to(torch.float8_e4m3fn), indices, scale)


def poisoned(call: Call) -> Call:
    """NaN in every slot that no row of the call names."""
    live = (call.indices >= 0) & (call.indices < len(call.cache))
    if call.lengths is not None:
        live &= torch.arange(call.indices.shape[1]) < call.lengths.unsqueeze(1)
    named = torch.zeros(len(call.cache), dtype=torch.bool)
    named[call.indices[live].long()] = True
    cache = call.cache.float()
    cache[~named] = float("nan")
    return replace(call, cache=cache.to(call.cache.dtype))
