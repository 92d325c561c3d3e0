"""Run planned steps on the model: ragged and eager, or through captured graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from evalsuite.mini.batch import BlockTables, RaggedBatch, RowSpec, ragged_batch
from evalsuite.mini.caches import Caches
from evalsuite.mini.captured import CapturedSize
from evalsuite.mini.counters import Counters, Routes
from evalsuite.mini.graphs import GraphSet
from evalsuite.mini.metadata import DecodeInputs
from evalsuite.mini.model.decoder import Model, forward, logits
from evalsuite.mini.sequence import Sequence
from evalsuite.mini.speculate import Verified, draft_all, first_draft, verify
from sparse_mla import launches


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """k drafts per step; padded batch sizes to capture (none: eager) and their block-table width.

    `share_slots`: later draft steps reuse step 0's keys. `fused_drafts`: all draft steps in one
    graph; otherwise the metadata is rebuilt on the host between them.
    """

    k: int
    graph_batches: tuple[int, ...]
    graph_table: int
    share_slots: bool
    fused_drafts: bool


class Emission(NamedTuple):
    """What a step gave one sequence: tokens with margins, accepted drafts, next drafts."""

    sequence: Sequence
    tokens: list[int]
    margins: list[float]
    accepted: int
    drafts: list[int]


class Bounds(NamedTuple):
    """Bounds on the accepted count of one request in one step."""

    low: int
    high: int


class ModelRunner:
    """Executes steps of one session on its caches."""

    def __init__(
        self,
        model: Model,
        caches: Caches,
        options: RunnerOptions,
        counters: Counters,
        tables: BlockTables,
    ) -> None:
        self.model, self.caches, self.options = model, caches, options
        self.counters, self.tables = counters, tables
        self.device = model.weights.embed.device
        self.block_size = caches.shape.block_size
        self.graphs = GraphSet(self.device)
        self._sizes: dict[int, CapturedSize] = {}
        self._routes: dict[int, Routes] = {}

    @property
    def captured_sizes(self) -> tuple[int, ...]:
        """Padded batch sizes that are captured, ascending."""
        return tuple(sorted(self._sizes))

    def run(
        self,
        decode: list[RowSpec],
        prefill: list[RowSpec],
        bounds: list[Bounds],
        snapshots: list[tuple[int, int, int]],
    ) -> list[Emission]:
        """One step. With graphs the decode rows are replayed and prefill chunks run beside them."""
        with torch.inference_mode(not self._sizes), torch.no_grad():
            if not self._sizes:
                return self.run_ragged(decode, prefill, bounds, snapshots)
            out = self.run_captured(decode, bounds) if decode else []
            return out + (self.run_ragged([], prefill, [], snapshots) if prefill else [])

    def run_ragged(
        self,
        decode: list[RowSpec],
        prefill: list[RowSpec],
        bounds: list[Bounds],
        snapshots: list[tuple[int, int, int]],
    ) -> list[Emission]:
        """One forward pass over all rows of the step, without graphs."""
        batch = ragged_batch(
            decode,
            prefill,
            snapshots,
            self.tables,
            self.block_size,
            self.model.config.index_kpool,
            self.device,
        )
        with launches.counting() as launched:
            hidden = forward(self.model, batch.tokens, self.caches, batch.meta)
        routes = Routes(launched, self.model.route)
        self.counters.count_rows(decode, prefill, eager=True, route=routes)
        done = [
            i for i, s in enumerate(prefill) if s.start + len(s.tokens) == len(s.sequence.tokens)
        ]
        verified = self._verify_ragged(hidden, batch, decode, bounds)
        first = self._sample_prefill(hidden, batch, len(decode), done)
        drafts = self._draft_ragged(hidden, batch, decode, prefill, done, verified, first)
        return self._emissions(decode, [prefill[i] for i in done], verified, first, drafts)

    def _verify_ragged(
        self, hidden: Tensor, batch: RaggedBatch, decode: list[RowSpec], bounds: list[Bounds]
    ) -> Verified | None:
        group = batch.meta.decode
        if group is None:
            return None
        low = torch.tensor([b.low for b in bounds], device=self.device)
        high = torch.tensor([b.high for b in bounds], device=self.device)
        scores = logits(self.model, hidden[group.rows])
        return verify(scores, batch.tokens[group.rows], group.valid.sum(1), low, high)

    def _sample_prefill(
        self, hidden: Tensor, batch: RaggedBatch, offset: int, done: list[int]
    ) -> Verified | None:
        if not done:
            return None
        rows = self._last_rows(batch, [offset + i for i in done])
        best = logits(self.model, hidden[rows]).topk(2, -1)
        margins = best.values[:, :1] - best.values[:, 1:]
        return Verified(best.indices[:, :1], margins, torch.zeros_like(rows))

    def _draft_ragged(
        self,
        hidden: Tensor,
        batch: RaggedBatch,
        decode: list[RowSpec],
        prefill: list[RowSpec],
        done: list[int],
        verified: Verified | None,
        first: Verified | None,
    ) -> Tensor | None:
        if self.options.k == 0 or self.caches.mtp is None:
            return None
        next_tokens = self._known_next_tokens(batch, prefill)
        requests: list[int] = []
        last_rows: list[Tensor] = []
        group = batch.meta.decode
        if verified is not None and group is not None:
            next_tokens[group.rows[group.valid]] = verified.emitted[group.valid]
            last_rows.append(group.rows.gather(1, verified.accepted.unsqueeze(1)).squeeze(1))
            requests += range(len(decode))
        if first is not None:
            finished = [len(decode) + i for i in done]
            rows = self._last_rows(batch, finished)
            next_tokens[rows] = first.emitted[:, 0]
            last_rows.append(rows)
            requests += finished
        which = torch.tensor(requests, dtype=torch.int64, device=self.device)
        rows = torch.cat(last_rows) if last_rows else which
        inputs = self._draft_inputs(batch, which)
        cache, size = self.caches.mtp, self.block_size
        state = first_draft(self.model, hidden, next_tokens, cache, size, batch.meta, rows, inputs)
        if not requests:
            return None
        options = self.options
        self.counters.draft_steps += options.k
        return draft_all(self.model, state, cache, size, options.k, options.share_slots)

    def _known_next_tokens(self, batch: RaggedBatch, prefill: list[RowSpec]) -> Tensor:
        """The token behind each row of a prompt; 0 where this step samples or verifies it."""
        flat: list[int] = []
        for spec in prefill:
            behind = spec.start + 1, spec.start + 1 + len(spec.tokens)
            following = spec.sequence.tokens[slice(*behind)]
            flat += following + [0] * (len(spec.tokens) - len(following))
        next_tokens = torch.zeros_like(batch.tokens)
        known = torch.tensor(flat, dtype=torch.int64, device=self.device)
        next_tokens[len(batch.tokens) - len(flat) :] = known
        return next_tokens

    def _last_rows(self, batch: RaggedBatch, requests: list[int]) -> Tensor:
        """The flat row of each request's newest token."""
        which = torch.tensor(requests, device=self.device)
        return batch.meta.query_start_loc[which + 1] - 1

    def _draft_inputs(self, batch: RaggedBatch, which: Tensor) -> DecodeInputs:
        meta, ones = batch.meta, torch.ones_like(which)
        return DecodeInputs(
            tokens=ones.unsqueeze(1),
            width=ones,
            context_lens=ones,
            state_slots=meta.state_slots[which],
            accepted=torch.zeros_like(which),
            force_low=ones,
            force_high=ones,
            block_tables=meta.block_tables[which],
        )

    def _emissions(
        self,
        decode: list[RowSpec],
        finished: list[RowSpec],
        verified: Verified | None,
        first: Verified | None,
        drafts: Tensor | None,
    ) -> list[Emission]:
        out: list[Emission] = []
        proposals = drafts.tolist() if drafts is not None else None
        for specs, result in ((decode, verified), (finished, first)):
            if result is None:
                continue
            columns = (result.emitted.tolist(), result.margins.tolist(), result.accepted.tolist())
            for spec, tokens, margins, accepted in zip(specs, *columns, strict=False):
                n = accepted + 1
                proposed = proposals[len(out)] if proposals is not None else []
                out.append(Emission(spec.sequence, tokens[:n], margins[:n], accepted, proposed))
        return out

    def capture(self) -> None:
        """Capture every size of the ladder. Raises UsageError where a step cannot be captured."""
        options = self.options
        for batch in sorted(options.graph_batches, reverse=True):
            size = CapturedSize(
                self.model,
                self.caches,
                self.graphs,
                options.k,
                options.share_slots,
                batch,
                options.graph_table,
            )
            with launches.counting() as launched:
                size.capture(options.fused_drafts)
            self._sizes[batch] = size
            self._routes[batch] = Routes(launched, self.model.route)

    def captured(self, count: int) -> CapturedSize:
        """The smallest captured size that holds `count` requests."""
        return self._sizes[min(batch for batch in self._sizes if batch >= count)]

    def run_captured(self, decode: list[RowSpec], bounds: list[Bounds]) -> list[Emission]:
        """Decode rows through the captured step of the smallest size that holds them."""
        out: list[Emission] = []
        most = max(self.options.graph_batches)
        for at in range(0, len(decode), most):
            out += self._replay(decode[at : at + most], bounds[at : at + most])
        return out

    def _replay(self, decode: list[RowSpec], bounds: list[Bounds]) -> list[Emission]:
        size = self.captured(len(decode))
        routes = self._routes[size.batch]
        self.counters.count_rows(decode, [], eager=False, route=routes)
        size.replay_target(decode, self.tables, [b.low for b in bounds], [b.high for b in bounds])
        drafts = None
        if self.options.k:
            drafts = size.replay_drafts(decode, self.tables, self.options.fused_drafts)
            self.counters.draft_steps += self.options.k
        out = size.outputs
        verified = Verified(out.emitted, out.margins, out.accepted)
        return self._emissions(decode, [], verified, None, drafts)
