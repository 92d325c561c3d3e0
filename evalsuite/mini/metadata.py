"""What a step tells the layers about its rows: positions, slots, groups, request tables.

Rows of a step lie flat, request after request. They form up to two groups: *decode* rows (plain
decode, width 1, and verification, width 2 to k + 1) and *prefill* chunks. A group addresses its
rows as [requests, widest], because recurrences and pools run along a request.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalsuite.mini.caches import TRASH_SLOT


def row_kind(width: int) -> str:
    """Name of a decode row group by its width: `decode`, or `verify:W`."""
    return "decode" if width == 1 else f"verify:{width}"


class Group(NamedTuple):
    """rows [b, W] into the flat batch, valid [b, W], requests [b] into the request tables.

    Entries of `rows` where `valid` is false point at some row and are not used. `covers` says that
    `rows` is 0 .. T - 1 in order, so that flat and grouped form are views of each other.
    """

    rows: Tensor
    valid: Tensor
    requests: Tensor
    covers: bool


class SnapshotPlan(NamedTuple):
    """Recurrent states to keep: after 16 * chunk rows of prefill request `request`, into `slot`.

    Each [M]; `request` indexes the prefill group.
    """

    request: Tensor
    chunk: Tensor
    slot: Tensor


class StepMetadata(NamedTuple):
    """Row tables [T] and request tables [B] of one step; all on the device.

    slot_mapping: slot of the row's latent, TRASH_SLOT for a padded row. pool_mapping: pool slot
    for rows that complete a pool, the trash pool otherwise. block_tables [B, n]. accepted [B]: rows
    of the last step that count, less one; it names the state to continue from. row_kinds: what
    kinds of rows the step has, padded blocks by their full width.
    """

    positions: Tensor
    row_request: Tensor
    row_valid: Tensor
    slot_mapping: Tensor
    pool_mapping: Tensor
    block_tables: Tensor
    state_slots: Tensor
    accepted: Tensor
    query_start_loc: Tensor
    seq_lens: Tensor
    decode: Group | None
    prefill: Group | None
    snapshots: SnapshotPlan | None
    row_kinds: frozenset[str]


class DecodeInputs(NamedTuple):
    """Static inputs of a decode step, all int64.

    tokens [B, W]; width [B] real rows (0: a padded request); context_lens [B] tokens before the
    step; state_slots, accepted [B]; force_low, force_high [B] bounds on the accepted count;
    block_tables [B, n].
    """

    tokens: Tensor
    width: Tensor
    context_lens: Tensor
    state_slots: Tensor
    accepted: Tensor
    force_low: Tensor
    force_high: Tensor
    block_tables: Tensor


def token_slots(block_tables: Tensor, positions: Tensor, block_size: int) -> Tensor:
    """Slots of positions [B, W] through block_tables [B, n].

    TRASH_SLOT for positions behind the table's end or in a block that is not there (id 0).
    """
    last = block_tables.shape[1] - 1
    block = block_tables.gather(1, (positions // block_size).clamp(0, last))
    there = (block > 0) & (positions // block_size <= last)
    return torch.where(there, block * block_size + positions % block_size, TRASH_SLOT)


def map_rows(positions: Tensor, valid: Tensor, slots: Tensor, kpool: int) -> tuple[Tensor, Tensor]:
    """(slot_mapping, pool_mapping) of rows with these positions and slots."""
    slot_mapping = torch.where(valid, slots, TRASH_SLOT)
    completes = valid & (slots != TRASH_SLOT) & ((positions + 1) % kpool == 0)
    return slot_mapping, torch.where(completes, slots // kpool, TRASH_SLOT)


def decode_metadata(inputs: DecodeInputs, block_size: int, kpool: int) -> StepMetadata:
    """Metadata of a pure decode step, computed on the device from its static inputs."""
    count, width = inputs.tokens.shape
    device = inputs.tokens.device
    offsets = torch.arange(width, device=device)
    positions = inputs.context_lens.unsqueeze(1) + offsets
    valid = offsets < inputs.width.unsqueeze(1)
    slots = token_slots(inputs.block_tables, positions, block_size)
    slot_mapping, pool_mapping = map_rows(positions, valid, slots, kpool)
    requests = torch.arange(count, device=device)
    rows = torch.arange(count * width, device=device).view(count, width)
    return StepMetadata(
        positions.flatten(),
        requests.repeat_interleave(width),
        valid.flatten(),
        slot_mapping.flatten(),
        pool_mapping.flatten(),
        inputs.block_tables,
        inputs.state_slots,
        inputs.accepted,
        torch.arange(count + 1, device=device) * width,
        inputs.context_lens + inputs.width,
        Group(rows, valid, requests, True),
        None,
        None,
        frozenset({row_kind(width)}),
    )
