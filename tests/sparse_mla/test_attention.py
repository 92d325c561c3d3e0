"""The attention kernels in Triton's interpreter: masks, ragged lists, splits, merge, empty rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from hypothesis import given, settings
from hypothesis import strategies as st
from problems import RANK, SCALE, Call, make, poisoned
from torch import Tensor

from sparse_mla import attention, reference
from sparse_mla.attention import sparse_mla
from sparse_mla.configs import SMALL, Config

NAN = float("nan")
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="these widths are for the interpreter"
)


@pytest.mark.parametrize("split_size", [None, 16, 48])
@pytest.mark.parametrize("rope", [0, 64])
@pytest.mark.parametrize(
    ("dtype", "fp8"),
    [
        (torch.float32, ""),
        (torch.float16, ""),
        (torch.float32, "tensor"),
        (torch.float32, "row"),
        (torch.float16, "row"),
    ],
)
def test_agrees_with_float64(
    dtype: torch.dtype, fp8: str, rope: int, split_size: int | None
) -> None:
    call = make(rope=rope, dtype=dtype, fp8=fp8)
    call.check(call.run(split_size=split_size))


@pytest.mark.parametrize("heads", [1, 8, 16, 20, 64])
def test_heads_fill_blocks_or_not(heads: int) -> None:
    call = make(2, heads, 20)
    call.check(call.run(split_size=16))


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**20), st.sampled_from([None, 16, 32])
)
def test_ragged_lists(rows: int, topk: int, seed: int, split_size: int | None) -> None:
    """Holes anywhere, lengths from none to all, and no slot read that no row names."""
    call = make(rows, 3, topk, slots=60, seed=seed)
    holes = torch.rand(rows, topk) < torch.rand(rows, 1)
    lengths = torch.randint(0, topk + 1, (rows,), dtype=torch.int32)
    call = replace(call, indices=torch.where(holes, -1, call.indices), lengths=lengths)
    call = poisoned(call)
    call.check(call.run(split_size=split_size))


def test_int64_lists_and_a_slot_that_means_no_key() -> None:
    call = make(2, 4, 131)
    indices = call.indices.long()
    indices[0, 0], indices[:, ::3] = 2**40, 0
    call = poisoned(replace(call, indices=torch.where(indices == 0, -1, indices)))
    found = replace(call, indices=indices).run(empty_index=0)
    replace(call, indices=indices).check(found, empty_index=0)


def test_a_slot_named_twice_counts_twice() -> None:
    call = make(1, 2, 20)
    indices = torch.tensor([[3, 3, 3, 5, -1, 7, 7]], dtype=torch.int32)
    call = replace(call, indices=indices)
    call.check(call.run())


def test_rows_without_keys_give_zero_and_minus_infinity() -> None:
    call = make(3, 4, 40)
    call = replace(call, lengths=torch.tensor([0, 40, 40], dtype=torch.int32))
    call.indices[2] = -1
    for split_size in (None, 16):
        out, lse = call.run(split_size=split_size)
        assert bool((out[[0, 2]] == 0).all()) and bool(torch.isneginf(lse[[0, 2]]).all())
        assert bool(torch.isfinite(lse[1]).all())


@pytest.mark.parametrize(("rows", "topk"), [(0, 16), (0, 0), (2, 0)])
def test_nothing_to_do(rows: int, topk: int) -> None:
    out, lse = make(rows, 4, topk).run()
    assert out.shape == (rows, 4, RANK) and lse.shape == (rows, 4)
    assert bool((out == 0).all()) and bool(torch.isneginf(lse).all())


def test_outputs_and_parts_are_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poison in the outputs, in the parts and in every unselected slot."""
    original = attention.empty_parts

    def poison(*arguments: Any) -> tuple[Tensor, ...]:
        return tuple(part.fill_(NAN) for part in original(*arguments))

    monkeypatch.setattr(attention, "empty_parts", poison)
    call = make(3, 5, 60, rope=64)
    call = poisoned(replace(call, lengths=torch.tensor([0, 17, 60], dtype=torch.int32)))
    out, lse = torch.full((3, 5, RANK), NAN), torch.full((3, 5), NAN)
    found = call.run(split_size=16, out=out, lse=lse)
    assert found[0] is out and found[1] is lse
    call.check(found)


def test_a_selected_nan_comes_through() -> None:
    call = make(2, 4, 40)
    call.cache[call.indices[0, 20]] = NAN
    call.indices[1] = torch.where(call.indices[1] == call.indices[0, 20], -1, call.indices[1])
    out, lse = call.run(split_size=16)
    assert bool(out[0].isnan().all()) and bool(lse[0].isnan().all())
    assert not bool(out[1].isnan().any()) and not bool(lse[1].isnan().any())


def test_a_row_does_not_see_its_company() -> None:
    """With split_size a row's result is bitwise the same alone, in a batch and repeated."""
    call = make(6, 4, 70)
    out, lse = call.run(split_size=32)
    for numbers in ((2,), (0, 1), (3, 4, 5), (5, 5, 5)):
        part = call.rows(*numbers).run(split_size=32)
        at = torch.tensor(numbers)
        assert torch.equal(part[0], out[at]) and torch.equal(part[1], lse[at])


def test_reruns_are_bitwise_equal() -> None:
    call = make(2, 4, 40)
    first = call.run(split_size=16)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(call.run(split_size=16), first, strict=True))


def test_order_of_keys_is_free() -> None:
    call = make(2, 4, 40)
    shuffled = replace(call, indices=call.indices[:, torch.randperm(40)].contiguous())
    call.check(shuffled.run())


def test_caches_with_gaps_and_sliced_queries() -> None:
    call = make(2, 4, 30)
    wide = torch.full((200, RANK + 16), NAN)
    wide[:, :RANK] = call.cache
    query = torch.full((2, 8, RANK), NAN)
    query[:, ::2] = call.query
    call.check(replace(call, cache=wide[:, :RANK], query=query[:, ::2]).run())


def test_fp8_tiles_read_ahead() -> None:
    """With one stage the FP8 kernel reads its next tile while it computes; with two it does not."""
    call = poisoned(make(2, 4, 50, fp8="row"))
    for stages in (1, 2):
        call.check(call.run(config=Config(16, 16, 4, stages), split_size=32))


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_fp8_scales_of_any_size(size: float) -> None:
    """Queries and row scales whose product alone is of ordinary size."""
    call = make(2, 4, 40, fp8="row")
    assert call.cache_scale is not None
    call = replace(call, query=call.query / size, cache_scale=call.cache_scale * size)
    out, lse = call.run()
    wanted = make(2, 4, 40, fp8="row")
    replace(wanted, query=wanted.query).check((out / size, lse))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(3, 4, RANK, dtype=torch.int32)}, "query is torch.int32"),
        ({"cache": torch.zeros(200, RANK, dtype=torch.float16)}, "cache is torch.float16"),
        ({"cache": torch.zeros(RANK, 200).T}, "cache is not contiguous"),
        ({"cache": torch.zeros(200, RANK * 2)}, "query is 32 wide and the cache 64"),
        ({"indices": torch.zeros(3, 50)}, "indices are torch.float32"),
        ({"indices": torch.zeros(2, 50, dtype=torch.int32)}, "3 query rows and 2 rows"),
        ({"indices": torch.zeros(50, 3, dtype=torch.int32).T}, "indices is not contiguous"),
        ({"lengths": torch.zeros(2, dtype=torch.int32)}, "lengths"),
        ({"lengths": torch.zeros(3, dtype=torch.int64)}, "lengths are torch.int64"),
        ({"cache_scale": torch.ones(())}, "takes no cache_scale"),
    ],
)
def test_bad_tensors_are_named(change: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(make(), **change).run()


def test_bad_options_are_named() -> None:
    call = make()
    with pytest.raises(ValueError, match="split_size 20"):
        call.run(split_size=20)
    with pytest.raises(ValueError, match="out is no contiguous"):
        call.run(out=torch.zeros(3, 4, RANK + 1))
    with pytest.raises(ValueError, match="kv_lora_rank 31"):
        sparse_mla(call.query, call.cache, call.indices, SCALE, kv_lora_rank=31)
    with pytest.raises(ValueError, match="takes a cache of 512"):
        call.run(config=replace(SMALL, kernel="gluon"))
    with pytest.raises(ValueError, match="neither one nor 200"):
        replace(make(fp8="row"), cache_scale=torch.ones(7)).run()


def test_the_index_check_names_the_first() -> None:
    call = make(2, 4, 20)
    call.indices[:] = 5
    call.indices[1, 3], call.indices[0, 2] = 200, -1
    with pytest.raises(ValueError, match=r"indices\[1, 3\] is 200"):
        call.run(check_indices=True)
    short = replace(call, lengths=torch.tensor([20, 3], dtype=torch.int32))
    short.check(short.run(check_indices=True))
    long = replace(call, lengths=torch.tensor([20, 21], dtype=torch.int32))
    with pytest.raises(ValueError, match="lengths"):
        long.run(check_indices=True)


def test_reference_merge_equals_attention_over_all() -> None:
    call: Call = make(2, 3, 40)
    whole = reference.attention(call.query, call.cache, call.indices, SCALE, kv_lora_rank=RANK)
    parts = [
        reference.attention(call.query, call.cache, part, SCALE, kv_lora_rank=RANK)
        for part in (call.indices[:, :13], call.indices[:, 13:], call.indices[:, :0])
    ]
    poison = torch.full_like(parts[2][0], NAN)
    outs = torch.stack([parts[0][0], parts[1][0], poison])
    out, lse = reference.merge(outs, torch.stack([part[1] for part in parts]))
    assert torch.allclose(out, whole[0], atol=1e-12) and torch.allclose(lse, whole[1], atol=1e-12)
