"""The seams of the miniature's engine that faults change, each in one place.

A change may be traced into a graph: it chooses by shapes and by tensors, never by a tensor's value
in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from evalsuite.faults.patch import Patch, wherever
from evalsuite.mini.metadata import Group, StepMetadata

DECODER = "evalsuite.mini.model.decoder"
MTP = "evalsuite.mini.model.mtp"
INDEXER = "evalsuite.mini.model.indexer"
LINEAR = "evalsuite.mini.model.linear_attention"
CAPTURED = "evalsuite.mini.captured"
RUNNER = "evalsuite.mini.runner"
SPECULATE = "evalsuite.mini.speculate"
BATCH = "evalsuite.mini.batch"
ENGINE = "evalsuite.mini.engine"
GRAPHS = "evalsuite.mini.graphs"
CACHES = "evalsuite.mini.caches"
BASE, DRAFTER = f"{DECODER}:sparse_attention", f"{MTP}:sparse_attention"


class Call(NamedTuple):
    """One attention call: `attend` is the healthy kernel, `meta` the step it belongs to."""

    attend: Callable[..., Tensor]
    meta: StepMetadata
    query: Tensor
    latent: Tensor
    slots: Tensor
    scale: float

    def healthy(self) -> Tensor:
        """What the kernel gives."""
        return self.attend(self.query, self.latent, self.slots, self.scale)


Attention = Callable[[Call], Tensor]


def attention(change: Attention, *, base: bool = True, drafter: bool = True) -> list[Patch]:
    """Replace the attention kernel of the base model's sparse layers, the drafter's, or both."""

    def wrap(sparse_attention: Any) -> Any:
        def changed(
            x: Tensor,
            weights: Any,
            cache: Any,
            meta: StepMetadata,
            block_size: int,
            config: Any,
            ops: Any,
            shared: Any = None,
        ) -> Any:
            def kernel(query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
                return change(Call(ops.attend, meta, query, latent, slots, scale))

            told = ops._replace(attend=kernel)
            return sparse_attention(x, weights, cache, meta, block_size, config, told, shared)

        return changed

    chosen = [BASE] * base + [DRAFTER] * drafter
    return [Patch(target, wrap) for target in chosen]


class Selection(NamedTuple):
    """One call that selects keys for a group of rows, with what it was called with."""

    function: Callable[..., Tensor]
    query: Tensor
    weights: Tensor
    cache: Any
    meta: StepMetadata
    group: Group
    block_size: int
    config: Any

    def healthy(self, **changed: Any) -> Tensor:
        """Slots [b, W, topk + kpool - 1], with some of the arguments changed."""
        now = self._replace(**changed)
        return self.function(*now[1:])

    @property
    def is_decode(self) -> bool:
        """Whether these are decode or verification rows."""
        return self.group is self.meta.decode

    @property
    def verifies(self) -> bool:
        """Whether a request has several rows here."""
        return self.is_decode and self.group.rows.shape[1] > 1

    def positions(self) -> Tensor:
        """Positions [b, W] of the rows; those of rows that are not there repeat others."""
        return self.meta.positions[self.group.rows]

    def last(self) -> Tensor:
        """Position [b, 1] of each request's last row."""
        there = torch.where(self.group.valid, self.positions(), 0)
        return there.amax(1, keepdim=True)

    def at(self, positions: Tensor) -> Tensor:
        """The selection as if the rows stood at these positions [b, W]."""
        rows = self.group.rows
        group = self.group._replace(
            rows=torch.arange(rows.numel(), device=rows.device).view_as(rows)
        )
        meta = self.meta._replace(positions=positions.flatten())
        query, weights = self.query[rows.flatten()], self.weights[rows.flatten()]
        return self.healthy(query=query, weights=weights, meta=meta, group=group)


def selection(change: Callable[[Selection], Tensor]) -> list[Patch]:
    """Replace the selection of keys in all sparse layers."""

    def wrap(select: Any) -> Any:
        return lambda *arguments: change(Selection(select, *arguments))

    return [Patch(f"{INDEXER}:_select_group", wrap)]


def decode_states(change: Callable[..., StepMetadata]) -> list[Patch]:
    """Give the recurrent layers' decode rows other metadata: change(meta, group, cache)."""

    def wrap(decode: Any) -> Any:
        def changed(
            rows: Any, weights: Any, cache: Any, meta: StepMetadata, group: Group, config: Any
        ) -> Any:
            return decode(rows, weights, cache, change(meta, group, cache), group, config)

        return changed

    return [Patch(f"{LINEAR}:_decode", wrap)]


def stored_pools(change: Callable[..., tuple[StepMetadata, Group]], kind: str) -> list[Patch]:
    """Give the writers of index pools (`decode` or `prefill`) other metadata:
    change(meta, group, cache)."""

    def wrap(update: Any) -> Any:
        def changed(
            entries: Tensor, cache: Any, weights: Any, meta: StepMetadata, group: Group, config: Any
        ) -> None:
            meta, group = change(meta, group, cache)
            update(entries, cache, weights, meta, group, config)

        return changed

    return [Patch(f"{INDEXER}:_update_{kind}", wrap)]


def decode_rows(meta: StepMetadata, like: Tensor, verifying: bool = False) -> Tensor | None:
    """Mask [T] of the step's decode rows; with `verifying` only where requests have several.

    None where there is no such row.
    """
    group = meta.decode
    if group is None or (verifying and group.rows.shape[1] == 1):
        return None
    if group.covers:
        return torch.ones(like.shape[0], dtype=torch.bool, device=like.device)
    mask = torch.zeros(like.shape[0], dtype=torch.bool, device=like.device)
    mask[group.rows[group.valid]] = True
    return mask


@dataclass
class Capturing:
    """Whether a step is being captured at the moment; patches of graph faults ask it."""

    depth: int = 0

    def __bool__(self) -> bool:
        return self.depth > 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Say that a step is being captured."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def watch(self) -> Patch:
        """The patch that keeps this up to date."""

        def wrap(capture: Any) -> Any:
            def watched(graphs: Any, key: Any, step: Any) -> None:
                with self.on():
                    capture(graphs, key, step)

            return watched

        return Patch(f"{GRAPHS}:GraphSet.capture", wrap)


class Filling(NamedTuple):
    """A captured step's static inputs, just written on the host: `used` requests of `batch`."""

    inputs: Any
    host: Any
    used: int
    batch: int


def static_inputs(change: Callable[[Filling], None]) -> list[Patch]:
    """Change what captured steps read, after it was written on the host: change(filling).

    Runs before the copy to the device. `host` has the fields of DecodeInputs, as arrays.
    """

    def wrap(fill: Any) -> Any:
        def filled(self: Any, specs: Any, tables: Any, low: Any, high: Any) -> None:
            fill(self, specs, tables, low, high)
            if self._copied is not None:
                self._copied.synchronize()
            host = type(self.host)(*(view.numpy() for view in self.host))
            change(Filling(self, host, len(specs), self.batch))
            self._device.copy_(self._host, non_blocking=True)
            if self._copied is not None:
                self._copied.record()

        return filled

    return [Patch(f"{BATCH}:StaticInputs.fill", wrap)]


def drafting(change: Callable[..., Any]) -> list[Patch]:
    """Replace the drafter's layer: change(mtp_layer, model, hidden, next_tokens, …)."""

    def wrap(layer: Any) -> Any:
        return lambda *arguments: change(layer, *arguments)

    return [Patch(f"{SPECULATE}:mtp_layer", wrap)]


def next_drafts(change: Callable[..., Any]) -> list[Patch]:
    """Replace the later draft steps: change(next_draft, model, state, cache, block, share)."""

    def wrap(step: Any) -> Any:
        return lambda *arguments: change(step, *arguments)

    return wherever("next_draft", (SPECULATE, CAPTURED), wrap)


def verification(change: Callable[..., Any]) -> list[Patch]:
    """Replace the acceptance of drafts: change(verify, scores, tokens, width, low, high)."""

    def wrap(verify: Any) -> Any:
        return lambda *arguments: change(verify, *arguments)

    return wherever("verify", (RUNNER, CAPTURED), wrap)
