"""Problems for the attention kernels: tensors of one call, made up from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_mla.attention import sparse_mla
from sparse_mla.compare import LSE, RESULT, Tolerance, difference
from sparse_mla.reference import attention

FP8_LARGEST = 448.0


@dataclass(frozen=True)
class Problem:
    """One call: as sparse_mla takes it. `rank` is the value's width."""

    query: Tensor
    cache: Tensor
    indices: Tensor
    scale: float
    rank: int
    cache_scale: Tensor | None = None
    lengths: Tensor | None = None

    def run(self, **options: object) -> tuple[Tensor, Tensor]:
        """Our kernel's out and lse."""
        return sparse_mla(
            self.query, self.cache, self.indices, self.scale, kv_lora_rank=self.rank,
            cache_scale=self.cache_scale, lengths=self.lengths, **options,
        )  # fmt: skip

    def wrong(
        self,
        found: tuple[Tensor, Tensor],
        rows: int | None = None,
        allowed: Tolerance | None = None,
    ) -> str | None:
        """What is wrong with a result, by the float64 reference on the first `rows` rows.

        `allowed` stands in for the tolerance of results of size 1.
        """
        part = slice(rows)
        out, lse = attention(
            self.query[part], self.cache, self.indices[part], self.scale, kv_lora_rank=self.rank,
            cache_scale=self.cache_scale,
            lengths=None if self.lengths is None else self.lengths[part],
        )  # fmt: skip
        wrong = difference(found[0][part], out, allowed or RESULT[self.query.dtype])
        return wrong or difference(found[1][part], lse, LSE)


def make(
    rows: int,
    heads: int,
    *,
    topk: int = 2048,
    slots: int = 65536,
    rank: int = 512,
    rope: int = 0,
    fp8: str = "",
    dtype: torch.dtype = torch.bfloat16,
    width: int = 1,
    shared: float = 0.0,
    device: str = "cuda",
    seed: int = 0,
) -> Problem:
    """A problem of random tensors. fp8: "" for a cache in `dtype`, "tensor" or "row" scales.

    Groups of `width` consecutive rows have a share `shared` of their keys in common.
    """
    generator = torch.Generator(device).manual_seed(seed)
    draw = {"generator": generator, "device": device}
    query = torch.randn(rows, heads, rank + rope, **draw).to(dtype)
    cache = torch.randn(slots, rank + rope, **draw)
    scale = None
    if fp8:
        cache = cache * (0.5 + torch.rand(slots, 1, **draw))
        scale = cache.abs().amax() if fp8 == "tensor" else cache.abs().amax(1)
        scale = (scale / FP8_LARGEST).float()
        cache = cache / (scale if fp8 == "tensor" else scale[:, None])
    found = shared_lists(rows, topk, slots, width, shared, generator, device)
    kind = torch.float8_e4m3fn if fp8 else dtype
    return Problem(query, cache.to(kind), found, (rank + rope) ** -0.5, rank, scale)


def shared_lists(
    rows: int, topk: int, slots: int, width: int, shared: float,
    generator: torch.Generator, device: str,
) -> Tensor:  # fmt: skip
    """Index lists int32 [rows, topk] without repeats inside a row, of which a share is common.

    A list of every row holds the common keys of its group first, and each is then shuffled.
    """
    common = round(topk * shared)
    own = topk - common
    need = common + width * own
    if need > slots:
        raise ValueError(f"{need} keys of a group do not fit {slots} slots")
    lists = torch.empty(rows, topk, dtype=torch.int32, device=device)
    for at in range(0, rows, width):
        keys = torch.randint(slots, (need * 2,), generator=generator, device=device)
        keys = keys.unique()
        keys = keys[torch.randperm(len(keys), generator=generator, device=device)][:need]
        if len(keys) < need:
            keys = torch.randperm(slots, generator=generator, device=device)[:need]
        for row in range(width):
            mine = torch.cat([keys[:common], keys[common + row * own : common + (row + 1) * own]])
            order = torch.randperm(topk, generator=generator, device=device)
            lists[at + row] = mine[order].to(torch.int32)
    return lists
