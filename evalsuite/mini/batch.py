"""Turn a step plan into tensors: flat ragged rows on the host, or static inputs of a graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evalsuite.mini.caches import TRASH_SLOT
from evalsuite.mini.metadata import DecodeInputs, Group, SnapshotPlan, StepMetadata, row_kind
from evalsuite.mini.sequence import Sequence

Array = NDArray[np.int64]


class RowSpec(NamedTuple):
    """One request's rows in a step: `tokens` from position `start` on."""

    sequence: Sequence
    tokens: list[int]
    start: int


def kinds_of_rows(decode: list[RowSpec], prefill: list[RowSpec]) -> frozenset[str]:
    """The kinds of rows in a step: by the width of each decode request, and `prefill`."""
    kinds = {row_kind(len(spec.tokens)) for spec in decode}
    return frozenset(kinds | {"prefill"} if prefill else kinds)


class RaggedBatch(NamedTuple):
    """Flat rows of a step and what the layers need to know of them."""

    tokens: Tensor
    meta: StepMetadata


class BlockTables:
    """Block ids of every request slot, kept on the host and brought up to date as blocks come."""

    def __init__(self, num_requests: int, width: int) -> None:
        self._table = np.zeros((num_requests, width), dtype=np.int64)
        self._known: list[tuple[int, int]] = [(-1, 0)] * num_requests

    def clear(self) -> None:
        """Forget all tables, as when tenancies are counted anew."""
        self._table[:] = 0
        self._known = [(-1, 0)] * len(self._known)

    def rows(self, sequences: list[Sequence], width: int) -> Array:
        """Tables [B, width] of these requests, 0 where a request has no block."""
        for sequence in sequences:
            arrival, known = self._known[sequence.slot]
            if arrival != sequence.tenancy:
                self._table[sequence.slot] = 0
                known = 0
            if known != len(sequence.blocks):
                self._table[sequence.slot, known : len(sequence.blocks)] = sequence.blocks[known:]
                self._known[sequence.slot] = (sequence.tenancy, len(sequence.blocks))
        return self._table[[sequence.slot for sequence in sequences], :width]


def ragged_batch(
    decode: list[RowSpec],
    prefill: list[RowSpec],
    snapshots: list[tuple[int, int, int]],
    tables: BlockTables,
    block_size: int,
    kpool: int,
    device: torch.device,
) -> RaggedBatch:
    """Rows of decode requests, then of prefill chunks, one after the other without padding.

    snapshots: (prefill request, chunk boundary, snapshot slot) to keep.
    """
    specs, split = decode + prefill, len(decode)
    lengths = np.array([len(spec.tokens) for spec in specs], dtype=np.int64)
    starts = np.array([spec.start for spec in specs], dtype=np.int64)
    first_row = np.concatenate([[0], np.cumsum(lengths)])
    request = np.repeat(np.arange(len(specs)), lengths)
    position = np.arange(first_row[-1]) - first_row[:-1][request] + starts[request]
    sequences = [spec.sequence for spec in specs]
    table = tables.rows(sequences, max(len(sequence.blocks) for sequence in sequences))
    slot = table[request, position // block_size] * block_size + position % block_size
    pool = np.where((position + 1) % kpool == 0, slot // kpool, TRASH_SLOT)

    def put(values: Array | list[int]) -> Tensor:
        values = np.ascontiguousarray(values, dtype=np.int64)
        return torch.from_numpy(values).to(device, non_blocking=True)

    def group(which: range) -> Group | None:
        return _group(which, lengths, first_row, device) if which else None

    columns = [list(column) for column in zip(*snapshots, strict=True)]
    meta = StepMetadata(
        positions=put(position),
        row_request=put(request),
        row_valid=torch.ones(len(position), dtype=torch.bool, device=device),
        slot_mapping=put(slot),
        pool_mapping=put(pool),
        block_tables=put(table),
        state_slots=put([sequence.slot for sequence in sequences]),
        accepted=put([sequence.accepted for sequence in sequences]),
        query_start_loc=put(first_row),
        seq_lens=put(starts + lengths),
        decode=group(range(split)),
        prefill=group(range(split, len(specs))),
        snapshots=SnapshotPlan(*map(put, columns)) if snapshots else None,
        row_kinds=kinds_of_rows(decode, prefill),
    )
    return RaggedBatch(put([token for spec in specs for token in spec.tokens]), meta)


def _group(which: range, lengths: Array, first_row: Array, device: torch.device) -> Group:
    """The group of requests `which`, of requests with `lengths` rows from `first_row` on."""
    mine, first = lengths[which.start : which.stop, None], first_row[which.start : which.stop, None]
    offset = np.arange(int(mine.max()))
    valid = offset < mine
    rows = np.where(valid, first + offset, first)
    covers = len(which) == len(lengths) and bool(valid.all())
    put = [torch.from_numpy(a).to(device, non_blocking=True) for a in (rows, valid)]
    requests = torch.arange(which.start, which.stop, device=device)
    return Group(put[0], put[1], requests, covers)


class _Arrays(NamedTuple):
    """The host side of DecodeInputs, as arrays."""

    tokens: Array
    width: Array
    context_lens: Array
    state_slots: Array
    accepted: Array
    force_low: Array
    force_high: Array
    block_tables: Array


class StaticInputs:
    """Static input buffers of one captured shape: filled on the host, copied in one go."""

    def __init__(self, batch: int, width: int, table_width: int, device: torch.device) -> None:
        sizes = [batch * width, *[batch] * 6, batch * table_width]
        pinned = device.type == "cuda"
        self._host = torch.zeros(sum(sizes), dtype=torch.int64, pin_memory=pinned)
        self._device = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        self._copied = torch.cuda.Event() if pinned else None
        self.batch, self.width, self.table_width = batch, width, table_width
        self.host = self._views(self._host, sizes)
        self.inputs = self._views(self._device, sizes)

    def _views(self, flat: Tensor, sizes: list[int]) -> DecodeInputs:
        parts = list(flat.split(sizes))
        parts[0] = parts[0].view(self.batch, self.width)
        parts[-1] = parts[-1].view(self.batch, self.table_width)
        return DecodeInputs(*parts)

    def fill(
        self, specs: list[RowSpec], tables: BlockTables, low: list[int], high: list[int]
    ) -> None:
        """Write the requests' values; rows behind them are padding (width 0, trash slots)."""
        host, count = _Arrays(*(view.numpy() for view in self.host)), len(specs)
        if self._copied is not None:
            self._copied.synchronize()  # the last copy may still be queued behind a replay
        self._host.zero_()
        host.tokens[:count] = [s.tokens + [0] * (self.width - len(s.tokens)) for s in specs]
        host.width[:count] = [len(spec.tokens) for spec in specs]
        host.context_lens[:count] = [spec.start for spec in specs]
        host.state_slots[:count] = [spec.sequence.slot for spec in specs]
        host.accepted[:count] = [spec.sequence.accepted for spec in specs]
        host.force_low[:count] = low
        host.force_high[:count] = high
        host.block_tables[:count] = tables.rows([spec.sequence for spec in specs], self.table_width)
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record()
