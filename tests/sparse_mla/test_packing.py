"""Row packing in Triton's interpreter: the union is exact whatever the lists hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")

from hypothesis import given, settings
from hypothesis import strategies as st
from problems import Call, make, poisoned
from torch import Tensor

from sparse_mla.packing import (
    Packing,
    choose_rows,
    group_rows,
    measure_overlap,
    pack_rows,
    worth_packing,
)

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="these widths are for the interpreter"
)


def alike(rows: int, groups: int, topk: int, slots: int, own: float, seed: int) -> Call:
    """A call whose groups of `rows` share their lists but for a share `own`, repeats included."""
    call = make(rows * groups, 2, topk, slots=slots, seed=seed)
    shared = torch.randint(0, slots, (groups, 1, topk), dtype=torch.int32)
    shared = shared.expand(groups, rows, topk).reshape(rows * groups, topk)
    mine = torch.rand(rows * groups, topk) < own
    return replace(call, indices=torch.where(mine, call.indices, shared))


def members(packing: Packing, group: int, row: int) -> list[int]:
    """Slots that a packing lists for one row of one group, sorted."""
    count = int(packing.counts[group])
    has = (packing.members[group, :count] >> row) & 1 == 1
    return sorted(packing.indices[group, :count][has].tolist())


def keys(call: Call, row: int) -> list[int]:
    """Slots that a row of a call names, sorted."""
    listed: Tensor = call.indices[row]
    if call.lengths is not None:
        listed = listed[: int(call.lengths[row])]
    return sorted(listed[(listed >= 0) & (listed < len(call.cache))].tolist())


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.integers(1, 40),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.integers(0, 2**20),
)
def test_every_row_keeps_its_keys(rows: int, topk: int, own: float, seed: int) -> None:
    call = alike(rows, 2, topk, slots=50, own=own, seed=seed)
    lengths = torch.randint(0, topk + 1, (2 * rows,), dtype=torch.int32)
    call = replace(call, lengths=lengths)
    packing = pack_rows(call.indices, rows, 50, lengths=lengths)
    for row in range(2 * rows):
        assert members(packing, row // rows, row % rows) == keys(call, row)


@pytest.mark.parametrize("rows", [2, 3, 6])
def test_packed_attention_agrees_with_float64(rows: int) -> None:
    call = alike(rows, 2, 40, slots=200, own=0.3, seed=rows)
    lengths = torch.randint(0, 41, (2 * rows,), dtype=torch.int32)
    lengths[1] = 0
    call = poisoned(replace(call, lengths=lengths))
    packing = pack_rows(call.indices, rows, len(call.cache), lengths=lengths)
    call.check(call.run(packing=packing))


def test_packed_fp8_with_row_scales() -> None:
    call = make(4, 2, 40, fp8="row")
    packing = pack_rows(call.indices, 2, len(call.cache))
    call.check(call.run(packing=packing))


def test_an_empty_slot_of_ones_own_choice() -> None:
    call = make(2, 2, 40, slots=30)
    call.indices[:, ::4] = 0
    packing = pack_rows(call.indices, 2, 30, empty_index=0)
    call.check(call.run(packing=packing, empty_index=0), empty_index=0)


def test_a_union_is_as_small_as_it_can_be_and_in_a_fixed_order() -> None:
    call = alike(4, 1, 64, slots=500, own=0.1, seed=3)
    packing = pack_rows(call.indices, 4, 500)
    named = [keys(call, row) for row in range(4)]
    # What a row names twice, which no top-k does, stands alone each time; all else is there once.
    repeated = {key for row in named for key in row if row.count(key) > 1}
    distinct = {key for row in named for key in row} - repeated
    least = len(distinct) + sum(key in repeated for row in named for key in row)
    # What loses its cell in both tables is listed once for each row: a few at most.
    assert least <= int(packing.counts[0]) <= least + 12
    again = pack_rows(call.indices, 4, 500)
    count = int(packing.counts[0])
    assert torch.equal(packing.indices[:, :count], again.indices[:, :count])
    first = next(slot for slot in call.indices[0].tolist() if slot >= 0)
    assert int(packing.indices[0, 0]) == first


def test_overlap() -> None:
    same = torch.arange(20, dtype=torch.int32).repeat(3, 1)
    assert measure_overlap(same, 3) == pytest.approx(1 / 3)
    assert measure_overlap(torch.arange(60).view(3, 20), 3) == 1.0
    assert measure_overlap(torch.tensor([[1, -1, 2], [2, 3, -1]]), 2) == pytest.approx(3 / 4)
    assert measure_overlap(torch.tensor([[1, 0, 2], [2, 3, 0]]), 2, empty_index=0) == 0.75


def test_group_rows_divides_the_width_and_fits_a_program() -> None:
    assert [group_rows(width, 16) for width in (1, 2, 3, 4, 5, 6)] == [1, 2, 3, 4, 1, 3]
    assert [group_rows(width, 8) for width in (4, 5, 6)] == [4, 5, 6]
    assert group_rows(6, 64) == 1


def test_packing_is_chosen_by_overlap_groups_and_layers() -> None:
    assert worth_packing(0.34, 3, 128, 132, layers=12)
    assert not worth_packing(0.34, 3, 128, 132, layers=1)
    assert not worth_packing(0.9, 3, 128, 132, layers=40)
    assert not worth_packing(0.34, 3, 16, 132, layers=12)
    assert not worth_packing(0.1, 1, 128, 132, layers=12)


def test_bad_calls_are_named() -> None:
    call = make(4, 2, 10)
    with pytest.raises(ValueError, match="groups of 3"):
        pack_rows(call.indices, 3, 200)
    with pytest.raises(ValueError, match="rows 9"):
        pack_rows(call.indices, 9, 200)
    with pytest.raises(ValueError, match="int32"):
        pack_rows(call.indices, 2, 2**31)
    packing = pack_rows(call.indices, 2, 200)
    with pytest.raises(ValueError, match="packing of 4 rows"):
        make(2, 2, 10).run(packing=packing)
    with pytest.raises(ValueError, match="split_size"):
        call.run(packing=packing, split_size=16)


def test_rows_are_packed_where_their_lists_are_alike() -> None:
    requests, width, topk = 64, 6, 24
    alike = torch.arange(requests * topk, dtype=torch.int32).view(requests, 1, topk)
    alike = alike.expand(-1, width, -1).reshape(-1, topk)
    apart = torch.arange(requests * width * topk, dtype=torch.int32).view(-1, topk)
    assert choose_rows(alike, width, 16, 132, layers=12) == 3
    assert choose_rows(alike, width, 8, 32, layers=12) == 6
    assert choose_rows(apart, width, 16, 132, layers=12) == 1
    # One layer's saving does not pay for the union; few groups and many heads leave rows apart.
    assert choose_rows(alike, width, 16, 132) == 1
    assert choose_rows(alike[: 6 * width], width, 16, 132, layers=12) == 1
    assert choose_rows(alike, width, 64, 132, layers=12) == 1
    assert choose_rows(alike[:0], width, 16, 132, layers=12) == 1
    with pytest.raises(ValueError, match="383 rows do not divide into requests of 6"):
        choose_rows(alike[1:], width, 16, 132)
