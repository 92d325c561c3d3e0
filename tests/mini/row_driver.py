"""Drives the model step by step on chosen rows, without the scheduler.

Caches start as NaN wherever a live engine may hold another request's leftovers, so that reading
anything that was never written shows.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

from evalsuite.mini.batch import BlockTables, RaggedBatch, RowSpec, ragged_batch
from evalsuite.mini.caches import ZERO_SLOT, Caches, CacheShape, LinearCache, allocate
from evalsuite.mini.model.decoder import Model, forward
from evalsuite.mini.sequence import GenerationRequest, Sequence

BLOCK_SIZE = 16
CPU = torch.device("cpu")


class RowDriver:
    """Requests with given tokens; `k` drafts per verification at most."""

    def __init__(self, model: Model, prompts: list[list[int]], k: int = 0) -> None:
        self.model = model
        longest = max(len(prompt) for prompt in prompts) + k
        each = -(-longest // BLOCK_SIZE)
        blocks = list(range(1, 1 + each * len(prompts)))
        random.Random(5).shuffle(blocks)
        self.sequences = []
        for i, prompt in enumerate(prompts):
            sequence = Sequence(GenerationRequest(str(i), tuple(prompt), 1), i, list(prompt))
            sequence.slot, sequence.tenancy = i + 1, i
            sequence.blocks = blocks[i * each : (i + 1) * each]
            self.sequences.append(sequence)
        shape = CacheShape(1 + len(blocks), BLOCK_SIZE, len(prompts) + 1, k, 1)
        dtype = model.weights.embed.dtype
        with_mtp = model.weights.mtp is not None
        self.caches = _spoil(allocate(model.config, shape, dtype, CPU, with_mtp))
        self.tables = BlockTables(shape.num_requests, each)
        self.batch: RaggedBatch | None = None

    def step(self, prefill: dict[int, int], decode: dict[int, int] | None = None) -> list[Tensor]:
        """Run the next `n` known tokens of each request; returns hidden [n, H] of each.

        Decode requests come first, both in the order given. All decode rows count as accepted
        until `accept` says less.
        """
        batch = self.advance(prefill, decode)
        with torch.no_grad():
            hidden = forward(self.model, batch.tokens, self.caches, batch.meta)
        return list(hidden.split([*(decode or {}).values(), *prefill.values()]))

    def advance(self, prefill: dict[int, int], decode: dict[int, int] | None = None) -> RaggedBatch:
        """The batch of a step, and the requests moved on by it, without running the model."""
        decoding = [self._spec(i, n) for i, n in (decode or {}).items()]
        chunks = [self._spec(i, n) for i, n in prefill.items()]
        kpool = self.model.config.index_kpool
        self.batch = ragged_batch(decoding, chunks, [], self.tables, BLOCK_SIZE, kpool, CPU)
        for spec in decoding + chunks:
            spec.sequence.computed = spec.start + len(spec.tokens)
            spec.sequence.accepted = len(spec.tokens) - 1 if spec in decoding else 0
        return self.batch

    def _spec(self, request: int, count: int) -> RowSpec:
        sequence = self.sequences[request]
        start = sequence.computed
        return RowSpec(sequence, sequence.tokens[start : start + count], start)

    def accept(self, request: int, rows: int, accepted: int) -> None:
        """Take back the rows of the last verification of width `rows` behind the accepted ones."""
        sequence = self.sequences[request]
        sequence.accepted = accepted
        sequence.computed -= rows - 1 - accepted


def _spoil(caches: Caches) -> Caches:
    for cache in [*caches.layers, *([caches.mtp] if caches.mtp else [])]:
        if isinstance(cache, LinearCache):
            cache.conv[1:, cache.kept_conv.shape[1] :] = float("nan")
            cache.state[1:, 1:] = float("nan")
            continue
        cache.latent[ZERO_SLOT + 1 :] = float("nan")
        cache.pool.fill_(float("nan"))
        cache.ring.fill_(float("nan"))
    return caches
