"""Step tensors: ragged rows against a loop, static inputs against ragged rows, block tables."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evalsuite.mini.batch import BlockTables, RowSpec, StaticInputs, ragged_batch
from evalsuite.mini.caches import TRASH_SLOT, ring_size
from evalsuite.mini.metadata import decode_metadata, token_slots
from evalsuite.mini.sequence import GenerationRequest, Sequence

CPU = torch.device("cpu")
BLOCK, KPOOL, TABLE = 16, 4, 5
LAYOUT = settings(deadline=None, derandomize=True, max_examples=150)

rows = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 6)), min_size=1, max_size=5)


def spec(index: int, start: int, width: int) -> RowSpec:
    """A request in slot index + 1 with scattered blocks."""
    sequence = Sequence(GenerationRequest(str(index), (1,), 9), index, [1])
    count = -(-(start + width) // BLOCK)
    sequence.blocks = [(7 * (index * TABLE + n)) % 97 + 1 for n in range(count)]
    sequence.slot, sequence.tenancy, sequence.accepted = index + 1, index, index % 3
    return RowSpec(sequence, [10 * index + j for j in range(width)], start)


def expected_rows(one: RowSpec) -> list[tuple[int, int, int]]:
    """(position, slot, pool slot) of each row."""
    out = []
    for position in range(one.start, one.start + len(one.tokens)):
        slot = one.sequence.blocks[position // BLOCK] * BLOCK + position % BLOCK
        out.append((position, slot, slot // KPOOL if position % KPOOL == 3 else TRASH_SLOT))
    return out


@LAYOUT
@given(decode=rows, prefill=rows)
def test_ragged_rows(decode: list[tuple[int, int]], prefill: list[tuple[int, int]]) -> None:
    specs = [spec(i, *one) for i, one in enumerate([*decode, *prefill])]
    split, tables = len(decode), BlockTables(len(specs) + 1, TABLE)
    batch = ragged_batch(specs[:split], specs[split:], [], tables, BLOCK, KPOOL, CPU)
    flat = [row for one in specs for row in expected_rows(one)]
    meta = batch.meta
    found = zip(
        meta.positions.tolist(), meta.slot_mapping.tolist(), meta.pool_mapping.tolist(), strict=True
    )
    assert list(found) == flat
    assert batch.tokens.tolist() == [token for one in specs for token in one.tokens]
    assert meta.seq_lens.tolist() == [one.start + len(one.tokens) for one in specs]
    assert meta.state_slots.tolist() == [one.sequence.slot for one in specs]
    assert meta.accepted.tolist() == [one.sequence.accepted for one in specs]
    at = meta.query_start_loc.tolist()
    assert at[0] == 0 and [b - a for a, b in itertools.pairwise(at)] == [
        len(one.tokens) for one in specs
    ]
    for group, requests in ((meta.decode, range(split)), (meta.prefill, range(split, len(specs)))):
        assert group is not None and group.requests.tolist() == list(requests)
        for line, index in enumerate(requests):
            real = group.rows[line][group.valid[line]].tolist()
            assert real == list(range(at[index], at[index + 1]))


@LAYOUT
@given(decode=rows, spare=st.integers(0, 3))
def test_static_inputs_give_the_ragged_metadata(decode: list[tuple[int, int]], spare: int) -> None:
    specs = [spec(i, *one) for i, one in enumerate(decode)]
    tables = BlockTables(len(specs) + 1, TABLE)
    ragged = ragged_batch(specs, [], [], tables, BLOCK, KPOOL, CPU).meta
    static = StaticInputs(len(specs) + spare, 6, TABLE, CPU)
    static.fill(specs, tables, [0] * len(specs), [5] * len(specs))
    meta = decode_metadata(static.inputs, BLOCK, KPOOL)
    real = meta.row_valid
    assert int(real.sum()) == len(ragged.positions)
    for name in ("positions", "slot_mapping", "pool_mapping", "row_request"):
        assert torch.equal(getattr(meta, name)[real], getattr(ragged, name)), name
    for name in ("state_slots", "accepted", "seq_lens"):
        assert torch.equal(getattr(meta, name)[: len(specs)], getattr(ragged, name)), name
    assert (meta.slot_mapping[~real] == TRASH_SLOT).all()
    assert (meta.pool_mapping[~real] == TRASH_SLOT).all()
    assert not meta.state_slots[len(specs) :].any()


def test_positions_without_a_block_go_to_the_trash() -> None:
    table = torch.tensor([[3, 0], [4, 9]])
    positions = torch.tensor([[15, 16], [31, 32]])
    expected = [[3 * 16 + 15, TRASH_SLOT], [9 * 16 + 15, TRASH_SLOT]]
    assert token_slots(table, positions, 16).tolist() == expected


def test_a_new_tenant_of_a_slot_sees_none_of_the_last_ones_blocks() -> None:
    tables = BlockTables(3, TABLE)
    first, second = spec(0, 0, 60).sequence, spec(0, 0, 17).sequence
    assert tables.rows([first], TABLE).tolist() == [[*first.blocks, 0]]
    second.tenancy, second.blocks = 5, [50, 51]
    assert tables.rows([second], TABLE).tolist() == [[50, 51, 0, 0, 0]]
    second.blocks.append(52)
    assert tables.rows([second], 3).tolist() == [[50, 51, 52]]


def test_cleared_tables_forget_tenancies() -> None:
    tables = BlockTables(3, TABLE)
    first, second = spec(0, 0, 60).sequence, spec(0, 0, 17).sequence
    tables.rows([first], TABLE)
    tables.clear()
    second.blocks = [50, 51]
    assert tables.rows([second], TABLE).tolist() == [[50, 51, 0, 0, 0]]


@pytest.mark.parametrize(("k", "size"), [(0, 4), (1, 8), (4, 8), (5, 16)])
def test_the_tail_ring_holds_a_pool_behind_a_rejected_one(k: int, size: int) -> None:
    assert ring_size(4, k) == size
