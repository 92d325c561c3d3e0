"""The PyTorch kernel, and the adapters of other projects' kernels around stand-ins for them."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_mla import external
from sparse_mla.portable import gather_mla

RANK = 32


def truth(
    query: Tensor, cache: Tensor, indices: Tensor, scale: float, rank: int = RANK
) -> tuple[Tensor, Tensor]:
    """Attention row by row and head by head in float64; cache is dequantised already."""
    rows, heads, _ = query.shape
    out = torch.zeros(rows, heads, rank, dtype=torch.float64)
    lse = torch.full((rows, heads), -math.inf, dtype=torch.float64)
    for t in range(rows):
        keys = [cache[i].double() for i in indices[t].tolist() if 0 <= i < len(cache)]
        for h in range(heads if keys else 0):
            scores = torch.stack([query[t, h].double() @ key for key in keys]) * scale
            lse[t, h] = scores.logsumexp(0)
            for share, key in zip((scores - lse[t, h]).exp(), keys, strict=True):
                out[t, h] += share * key[:rank]
    return out, lse


def call(rows: int, columns: int, rope: int = 0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random query of 3 heads, a cache of 40 slots and indices with holes."""
    dice = torch.Generator().manual_seed(seed)
    query = torch.randn(rows, 3, RANK + rope, generator=dice)
    cache = torch.randn(40, RANK + rope, generator=dice)
    return query, cache, torch.randint(-9, 44, (rows, columns), generator=dice)


def close(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor], tolerance: float) -> None:
    """Compare out and lse, infinities first."""
    assert torch.equal(torch.isneginf(found[1]), torch.isneginf(expected[1]))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, atol=tolerance, rtol=tolerance)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(0, 5),
    columns=st.integers(1, 20),
    rope=st.sampled_from([0, 8]),
    seed=st.integers(0, 999),
)
def test_gathering_agrees_with_float64(rows: int, columns: int, rope: int, seed: int) -> None:
    query, cache, indices = call(rows, columns, rope, seed)
    found = gather_mla(query, cache, indices, 0.3, kv_lora_rank=RANK)
    close(found, truth(query, cache, indices, 0.3), 1e-5)


def test_lengths_empty_slots_and_types() -> None:
    query, cache, indices = call(4, 12)
    lengths = torch.tensor([0, 3, 12, 7], dtype=torch.int32)
    cut = torch.where(torch.arange(12) < lengths.unsqueeze(1), indices, -1)
    expected = truth(query, cache, cut, 0.3)
    options: dict[str, Any] = {"kv_lora_rank": RANK, "lengths": lengths}
    close(gather_mla(query, cache, indices.int(), 0.3, **options), expected, 1e-5)
    out, lse = gather_mla(query, cache, indices, 0.3, **options)
    assert (out[0] == 0).all() and torch.isneginf(lse[0]).all()
    cut[cut == 5] = -1
    expected = truth(query, cache, cut, 0.3)
    close(gather_mla(query, cache, indices, 0.3, empty_index=5, **options), expected, 1e-5)


@pytest.mark.parametrize("per_row", [False, True])
def test_scales_of_an_fp8_cache(per_row: bool) -> None:
    query, cache, indices = call(4, 12, 8)
    scale = cache.abs().amax(1) / 448 if per_row else cache.abs().amax() / 448
    quantised = (cache / (scale.unsqueeze(1) if per_row else scale)).to(torch.float8_e4m3fn)
    back = quantised.float() * (scale.unsqueeze(1) if per_row else scale)
    found = gather_mla(query, quantised, indices, 0.3, kv_lora_rank=RANK, cache_scale=scale)
    close(found, truth(query, back, indices, 0.3), 1e-5)


def test_poison_in_slots_that_no_row_names_stays_there() -> None:
    query, cache, indices = call(6, 12)
    expected = gather_mla(query, cache, indices, 0.3, kv_lora_rank=RANK)
    unused = sorted(set(range(40)) - set(indices.flatten().tolist()))
    poisoned = cache.clone()
    poisoned[[*unused, 0]] = math.nan
    indices = torch.where(indices == 0, -1, indices)
    expected = gather_mla(query, cache, indices, 0.3, kv_lora_rank=RANK)
    found = gather_mla(query, poisoned, indices, 0.3, kv_lora_rank=RANK)
    assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(2, 3, 8), torch.zeros(4, 9), torch.zeros(2, 5).long()), "8 wide .* 9"),
        ((torch.zeros(2, 3, 8), torch.zeros(4, 8), torch.zeros(2, 5)), "int32 or int64"),
        ((torch.zeros(2, 3, 8), torch.zeros(4, 8), torch.zeros(1, 5).long()), "2 query rows and 1"),
        ((torch.zeros(2, 8), torch.zeros(4, 8), torch.zeros(2, 5).long()), "expected query"),
    ],
)
def test_shapes_that_disagree_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gather_mla(*arguments, 0.3, kv_lora_rank=8)
    with pytest.raises(ValueError, match="lengths"):
        query, cache, indices = call(2, 4)
        gather_mla(query, cache, indices, 0.3, lengths=torch.ones(3, dtype=torch.int32))


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """A module of another project with these members."""
    module = ModuleType(name)
    module.__dict__.update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_flash_mla_gets_its_layout_and_its_lse_is_brought_to_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query, cache, indices = call(3, 12)
    indices[1] = -1

    def forward(
        q: Tensor, kv: Tensor, at: Tensor, scale: float, use_legacy: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        assert use_legacy and at.dtype == torch.int32 and at.shape == (3, 1, 12)
        assert kv.shape == (40, 1, RANK) and at.min() == -1
        out, lse = truth(q, kv[:, 0], at[:, 0], scale)
        return out.float(), lse, torch.where(torch.isneginf(lse), math.inf, lse)

    stand_in(monkeypatch, "flash_mla", flash_mla_sparse_fwd=forward)
    found = external.flash_mla(query, cache, indices, 0.3)
    close(found, truth(query, cache, indices, 0.3), 1e-5)
    with pytest.raises(ValueError, match="cache_scale"):
        external.flash_mla(query, cache, indices, 0.3, cache_scale=torch.ones(()))


@pytest.mark.parametrize("rope", [0, 8])
def test_aiter_gets_csr_indices(monkeypatch: pytest.MonkeyPatch, rope: int) -> None:
    query, cache, indices = call(3, 12, rope)

    def forward(
        q: Tensor, kv: Tensor, start: Tensor, flat: Tensor, scale: float, **options: Any
    ) -> tuple[Tensor, Tensor]:
        assert options["has_invalid"] and options["return_lse"] and flat.dtype == torch.int32
        assert (options["kv_lora_rank"], options["qk_rope_head_dim"]) == (RANK, rope)
        lists = [flat[a:b] for a, b in pairwise(start.tolist())]
        factor = 1.0 if options["kv_scale"] is None else options["kv_scale"][0]
        return truth(q, kv.float() * factor, torch.stack(lists), scale)

    stand_in(monkeypatch, external.AITER, sparse_mla_fwd=forward)
    for parent in ("aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.attention"):
        stand_in(monkeypatch, parent, __path__=[])
    lengths = torch.tensor([12, 0, 5])
    cut = torch.where(torch.arange(12) < lengths.unsqueeze(1), indices, -1)
    options: dict[str, Any] = {"kv_lora_rank": RANK, "lengths": lengths}
    found = external.aiter(query, cache, indices, 0.3, **options)
    close(found, truth(query, cache, cut, 0.3), 1e-5)
    found = external.aiter(query, cache, indices, 0.3, cache_scale=torch.tensor(2.0), **options)
    close(found, truth(query, cache * 2, cut, 0.3), 1e-5)


@pytest.mark.parametrize("rope", [0, 8])
def test_flashinfer_plans_only_rows_that_have_keys(
    monkeypatch: pytest.MonkeyPatch, rope: int
) -> None:
    query, cache, indices = call(4, 12, rope)
    indices[2] = 99

    class Wrapper:
        def __init__(self, workspace: Tensor) -> None:
            assert workspace.dtype == torch.int8

        def plan(self, *arguments: Any) -> None:
            self.rows, start, pages, self.counts, heads, rank, kpe, size, causal, self.scale = (
                arguments[:10]
            )
            assert (heads, rank, kpe, size, causal) == (3, RANK, rope, 1, False)
            self.lists = [pages[a:b] for a, b in pairwise(start.tolist())]
            assert [len(one) for one in self.lists] == self.counts.tolist()

        def run(
            self, nope: Tensor, pe: Tensor, ckv: Tensor, kpe: Tensor, **options: Any
        ) -> tuple[Tensor, Tensor]:
            assert options == {"return_lse": True, "return_lse_base_on_e": True}
            q, kv = torch.cat([nope, pe], -1), torch.cat([ckv[:, 0], kpe[:, 0]], -1)
            parts = [
                truth(q[i : i + 1], kv, one.unsqueeze(0), self.scale)
                for i, one in enumerate(self.lists)
            ]
            return torch.cat([p[0] for p in parts]).float(), torch.cat(
                [p[1] for p in parts]
            ).float()

    stand_in(monkeypatch, "flashinfer", mla=SimpleNamespace(), __path__=[])
    stand_in(monkeypatch, "flashinfer.mla", BatchMLAPagedAttentionWrapper=Wrapper)
    found = external.flashinfer(query, cache, indices, 0.3, kv_lora_rank=RANK)
    close(found, truth(query, cache, indices, 0.3), 1e-5)
    nothing = torch.full_like(indices, -1)
    found = external.flashinfer(query, cache, nothing, 0.3, kv_lora_rank=RANK)
    close(found, truth(query, cache, nothing, 0.3), 1e-5)
