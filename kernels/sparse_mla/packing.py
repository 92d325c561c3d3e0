"""Row packing: the verification rows of a request share one list of keys.

Rows that follow each other in one request select mostly the same keys. For few heads a kernel's
time goes into gathering keys, so gathering the union of a few rows' lists once, with a mask of
which row has which key, is faster where the lists are alike. The result is the same attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sparse_mla.portable import selected

# Rows times heads that one program of the attention kernels takes.
PACKED_HEADS = 64
MOST_ROWS = 8
# Requests whose lists are looked at for their overlap.
SAMPLED = 32
# Below this many groups for each multiprocessor, rows apart keep more of the chip busy.
LEAST_GROUPS = 0.75
# Of a layer's time with rows apart: what building the union costs, and what packing saves for a
# union of no keys and loses for each share of it. Measured on an H200, 16 heads, groups of 3, where
# rows apart run on FEW_HEADS: only lists that are nearly alike over many layers pay there.
BUILDING, SAVING, LOSING = 0.69, 0.28, 0.60
# Larger than every slot, and what marks a free cell of the hash tables.
FREE = 2**31 - 1


@dataclass(frozen=True)
class Packing:
    """Groups of `rows` consecutive query rows with one list of keys each.

    indices int32 [T / rows, rows * topk]: the union, in order of first appearance; counts int32
    [T / rows]: its length; members int32 [T / rows, rows * topk]: bit r for row r of the group. A
    slot that a row names twice stands twice. One packing serves every layer that shares the lists.
    """

    rows: int
    indices: Tensor
    members: Tensor
    counts: Tensor
    topk: int

    def check(self, query: Tensor, indices: Tensor) -> None:
        """Raise ValueError where this packing was not made for such a call."""
        rows = len(self.indices) * self.rows
        if len(query) != rows or indices.shape != (rows, self.topk):
            raise ValueError(
                f"packing of {rows} rows, top-{self.topk}, used for {len(query)} query rows and "
                f"indices {tuple(indices.shape)}"
            )


def group_rows(width: int, heads: int) -> int:
    """Rows of one group for requests of `width` rows: its largest divisor that fits a program."""
    return max(
        rows
        for rows in range(1, min(width, MOST_ROWS) + 1)
        if width % rows == 0 and (rows * heads <= PACKED_HEADS or rows == 1)
    )


def measure_overlap(indices: Tensor, rows: int, *, empty_index: int = -1) -> float:
    """The union's size as a share of the lists laid end to end, over groups of `rows` rows.

    1 / rows where all lists of a group are alike, 1 where none shares a key. indices int [T, topk].
    It waits for the device: measure on a sample, outside of a captured step. Raises ValueError
    where T is no multiple of `rows`.
    """
    _check_rows(indices, rows)
    found = selected(indices, FREE, None, empty_index)
    ordered = found.view(len(found) // rows, -1).sort(1).values
    there = ordered >= 0
    distinct = there.clone()
    distinct[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return float(distinct.sum() / there.sum().clamp(min=1))


def worth_packing(union: float, rows: int, groups: int, processors: int, layers: int = 1) -> bool:
    """Whether packing pays, by figures of an H200 (benchmarks/results/kernels-h200.md).

    `union` is from measure_overlap; `groups` of `rows` rows have to fill the device; `layers` that
    share their index lists share one packing.
    """
    if rows == 1 or groups < LEAST_GROUPS * processors:
        return False
    return layers * (SAVING - LOSING * union) > BUILDING


def choose_rows(
    indices: Tensor,
    width: int,
    heads: int,
    processors: int,
    *,
    layers: int = 1,
    empty_index: int = -1,
) -> int:
    """Rows of one group for pack_rows by the overlap of these lists, 1 where rows stay apart.

    indices int [T, topk] of requests with `width` rows each and `heads` heads, on a device with
    `processors` multiprocessors; `layers` that share them. It measures on SAMPLED requests spread
    over the batch and waits for the device: choose once, outside of a captured step. Raises
    ValueError where T is no multiple of `width`.
    """
    if width < 1 or len(indices) % width:
        raise ValueError(f"{len(indices)} rows do not divide into requests of {width}")
    rows, requests = group_rows(width, heads), len(indices) // width
    groups = requests * width // rows
    if not requests or not worth_packing(1.0 / rows, rows, groups, processors, layers):
        return 1
    every = -(-requests // SAMPLED)
    sample = indices.view(requests, width, -1)[::every].flatten(0, 1)
    union = measure_overlap(sample, rows, empty_index=empty_index)
    return rows if worth_packing(union, rows, groups, processors, layers) else 1


def pack_rows(
    indices: Tensor,
    rows: int,
    slots: int,
    *,
    lengths: Tensor | None = None,
    empty_index: int = -1,
) -> Packing:
    """The packing of indices int [T, topk] in groups of `rows` consecutive rows, on their device.

    `slots` of the cache bounds what counts as a key, lengths int32 [T] as in sparse_mla. It does
    not wait for the device, and the order of a union depends on the lists alone. Raises ValueError
    where T is no multiple of `rows`, `rows` is not 1 .. 8 or slots do not fit int32.
    """
    _check_rows(indices, rows)
    if slots >= FREE:
        raise ValueError(f"{slots} slots do not fit the packing's int32")
    from sparse_mla.packing_kernels import launch_packing

    groups, topk = len(indices) // rows, indices.shape[1]
    shape = (groups, rows * topk)
    packing = Packing(
        rows,
        torch.empty(shape, dtype=torch.int32, device=indices.device),
        torch.empty(shape, dtype=torch.int32, device=indices.device),
        torch.zeros(groups, dtype=torch.int32, device=indices.device),
        topk,
    )
    if groups and topk:
        launch_packing(packing, indices, lengths, slots, empty_index)
    return packing


def _check_rows(indices: Tensor, rows: int) -> None:
    if not 1 <= rows <= MOST_ROWS:
        raise ValueError(f"rows {rows} of a group are not within 1 .. {MOST_ROWS}")
    if len(indices) % rows:
        raise ValueError(f"{len(indices)} rows do not divide into groups of {rows}")
