"""The steps that are captured: target forward with verification, and drafting."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evalsuite.mini.batch import BlockTables, RowSpec, StaticInputs
from evalsuite.mini.caches import Caches, SparseCache
from evalsuite.mini.graphs import GraphSet
from evalsuite.mini.metadata import decode_metadata
from evalsuite.mini.model.decoder import Model, forward, logits
from evalsuite.mini.speculate import DraftState, draft_all, first_draft, next_draft, verify


class StaticOutputs(NamedTuple):
    """Static result buffers of one captured size.

    hidden [B * W, H]; emitted, margins [B, W]; accepted [B]; drafts [B, k]; and the state between
    rebuilt draft steps: draft_hidden [B, H], draft_token [B], draft_slots [B, N].
    """

    hidden: Tensor
    emitted: Tensor
    margins: Tensor
    accepted: Tensor
    drafts: Tensor
    draft_hidden: Tensor
    draft_token: Tensor
    draft_slots: Tensor


class CapturedSize:
    """All captured steps of one padded batch size and block-table width."""

    def __init__(
        self,
        model: Model,
        caches: Caches,
        graphs: GraphSet,
        k: int,
        share_slots: bool,
        batch: int,
        table: int,
    ) -> None:
        self.model, self.caches, self.graphs = model, caches, graphs
        self.k, self.share_slots, self.batch, self.table = k, share_slots, batch, table
        device = model.weights.embed.device
        self.inputs = StaticInputs(batch, k + 1, table, device)
        self.draft_inputs = StaticInputs(batch, 1, table, device)
        self.outputs = self._buffers(device)

    def _buffers(self, device: torch.device) -> StaticOutputs:
        config, dtype, rows = self.model.config, self.model.weights.embed.dtype, self.k + 1

        def ints(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int64, device=device)

        def floats(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        return StaticOutputs(
            floats(self.batch * rows, config.hidden_size),
            ints(self.batch, rows),
            torch.zeros(self.batch, rows, device=device),
            ints(self.batch),
            ints(self.batch, self.k),
            floats(self.batch, config.hidden_size),
            ints(self.batch),
            ints(self.batch, config.index_width),
        )

    @property
    def _mtp_cache(self) -> SparseCache:
        if self.caches.mtp is None:
            raise ValueError("drafting without an MTP cache")
        return self.caches.mtp

    def capture(self, fused_drafts: bool) -> None:
        """Capture the target step and the drafts, in one graph (fused) or one per draft step."""
        self.graphs.capture(self._key("target"), self._target)
        if self.k == 0:
            return
        if fused_drafts:
            self.graphs.capture(self._key("drafts"), self._fused_drafts)
            return
        self.graphs.capture(self._key("draft first"), self._first_draft_alone)
        if self.k > 1:
            self.graphs.capture(self._key("draft next"), self._next_draft_alone)

    def _key(self, step: str) -> tuple[str, int, int]:
        return step, self.batch, self.table

    def _target(self) -> Tensor:
        inputs, out, block = self.inputs.inputs, self.outputs, self.caches.shape.block_size
        meta = decode_metadata(inputs, block, self.model.config.index_kpool)
        hidden = forward(self.model, inputs.tokens.flatten(), self.caches, meta)
        scores = logits(self.model, hidden).view(self.batch, self.k + 1, -1)
        result = verify(scores, inputs.tokens, inputs.width, inputs.force_low, inputs.force_high)
        out.hidden.copy_(hidden)
        out.emitted.copy_(result.emitted)
        out.margins.copy_(result.margins)
        return out.accepted.copy_(result.accepted)

    def _first_draft(self) -> DraftState:
        inputs, out, block = self.inputs.inputs, self.outputs, self.caches.shape.block_size
        meta = decode_metadata(inputs, block, self.model.config.index_kpool)
        start = torch.arange(self.batch, device=out.hidden.device) * (self.k + 1)
        # A padded request stays padded, and a real one has one row, through all later steps.
        later = inputs._replace(width=inputs.width.clamp(max=1))
        return first_draft(
            self.model,
            out.hidden,
            out.emitted.flatten(),
            self._mtp_cache,
            block,
            meta,
            start + out.accepted,
            later,
        )

    def _fused_drafts(self) -> Tensor:
        block = self.caches.shape.block_size
        drafts = draft_all(
            self.model, self._first_draft(), self._mtp_cache, block, self.k, self.share_slots
        )
        return self.outputs.drafts.copy_(drafts)

    def _first_draft_alone(self) -> Tensor:
        return self._store(self._first_draft())

    def _next_draft_alone(self) -> Tensor:
        out = self.outputs
        state = DraftState(
            out.draft_hidden, out.draft_token, out.draft_slots, self.draft_inputs.inputs
        )
        block = self.caches.shape.block_size
        return self._store(next_draft(self.model, state, self._mtp_cache, block, self.share_slots))

    def _store(self, state: DraftState) -> Tensor:
        self.outputs.draft_hidden.copy_(state.hidden)
        self.outputs.draft_slots.copy_(state.slots)
        return self.outputs.draft_token.copy_(state.token)

    def replay_target(
        self, specs: list[RowSpec], tables: BlockTables, low: list[int], high: list[int]
    ) -> None:
        """Run the target step for these requests; results are in `outputs`."""
        self.inputs.fill(specs, tables, low, high)
        self.graphs.replay(self._key("target"))

    def replay_drafts(self, specs: list[RowSpec], tables: BlockTables, fused: bool) -> Tensor:
        """Run all draft steps behind the last target step; returns drafts [B, k]."""
        if fused:
            self.graphs.replay(self._key("drafts"))
            return self.outputs.drafts
        self.graphs.replay(self._key("draft first"))
        accepted = self.outputs.accepted.tolist()
        drafts = [self.outputs.draft_token.clone()]
        for step in range(self.k - 1):
            self._rebuild(specs, tables, accepted, step)
            self.graphs.replay(self._key("draft next"))
            drafts.append(self.outputs.draft_token.clone())
        return torch.stack(drafts, 1)

    def _rebuild(
        self, specs: list[RowSpec], tables: BlockTables, accepted: list[int], step: int
    ) -> None:
        rows = [
            RowSpec(spec.sequence, [0], spec.start + taken + step)
            for spec, taken in zip(specs, accepted, strict=False)
        ]
        none = [0] * len(rows)
        self.draft_inputs.fill(rows, tables, none, none)
