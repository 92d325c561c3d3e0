"""A session of the miniature's engine: requests in, answers out, one step at a time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Many

import torch
from tokenizers import Tokenizer

from evalsuite.errors import UsageError
from evalsuite.mini import caches as cache_memory
from evalsuite.mini.batch import BlockTables, RowSpec
from evalsuite.mini.blocks import BlockPool
from evalsuite.mini.caches import CacheShape, LinearCache
from evalsuite.mini.counters import Counters
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.delta_rule import BLOCK as CHUNK
from evalsuite.mini.options import SessionOptions
from evalsuite.mini.prefix import PrefixCache
from evalsuite.mini.runner import Bounds, Emission, ModelRunner, RunnerOptions
from evalsuite.mini.scheduler import Limits, Scheduler, StepPlan
from evalsuite.mini.sequence import GenerationRequest, Sequence
from evalsuite.mini.text import TokenBytes, advance_text

__all__ = ["Session", "SessionOptions"]


class Session:
    """One model in one arm: caches, scheduler, runner. Not thread-safe."""

    def __init__(self, model: Model, tokenizer: Tokenizer, options: SessionOptions) -> None:
        has_mtp = model.weights.mtp is not None
        options.validate(model.config.index_kpool, has_mtp)
        if options.max_model_len > model.config.max_position_embeddings:
            raise UsageError(
                f"session option max_model_len: {options.max_model_len} is above the model's "
                f"max_position_embeddings {model.config.max_position_embeddings}"
            )
        self.model, self.options = model, options
        self.vocabulary = TokenBytes(tokenizer, model.config.vocab_size)
        blocks = options.num_blocks or 1 + options.max_num_seqs * options.blocks_per_request
        shape = CacheShape(
            blocks, options.block_size, options.max_num_seqs + 1, options.k, options.num_snapshots
        )
        weights = model.weights
        self.caches = cache_memory.allocate(
            model.config, shape, weights.embed.dtype, weights.embed.device, options.k > 0
        )
        seed = options.shuffle_seed
        self._shuffle = None if seed is None else random.Random(seed)
        self._open_books()
        self.counters = Counters(draft_length=options.k)
        tables = BlockTables(shape.num_requests, options.blocks_per_request)
        runner_options = RunnerOptions(
            options.k,
            options.ladder(),
            options.blocks_per_request,
            options.share_slots,
            options.fused_drafts,
        )
        self.runner = ModelRunner(model, self.caches, runner_options, self.counters, tables)
        self.acceptance: Callable[[Sequence], Bounds] = lambda s: Bounds(0, options.k)
        if options.graph:
            self.runner.capture()

    def _open_books(self) -> None:
        """Start with every block free, nothing findable and no request."""
        options = self.options
        self.pool = BlockPool(self.caches.shape.num_blocks, self._shuffle)
        self.prefix = (
            PrefixCache(self.pool, options.block_size, options.num_snapshots)
            if options.prefix_caching
            else None
        )
        limits = Limits(
            options.max_num_seqs,
            options.max_num_batched_tokens,
            options.max_model_len,
            options.block_size,
            options.k,
            options.admit_batch,
        )
        vocabulary = self.model.config.vocab_size
        self.scheduler = Scheduler(limits, self.pool, self.prefix, vocabulary)

    def _start_over(self) -> None:
        """Drop all requests and cached prefixes; what was counted stays.

        A step that was broken off leaves blocks that are labelled and not filled.
        """
        scheduler, prefix = self.scheduler, self.prefix
        self._open_books()
        self.runner.tables.clear()
        self.scheduler.preemptions = scheduler.preemptions
        if self.prefix is not None and prefix is not None:
            self.prefix.hit_tokens = prefix.hit_tokens
            self.prefix.queried_tokens = prefix.queried_tokens

    def reset_counts(self) -> None:
        """Forget what was counted, after a warm-up."""
        self.counters.reset()
        self.runner.graphs.reset_counts()
        self.scheduler.preemptions = 0
        if self.prefix is not None:
            self.prefix.hit_tokens = self.prefix.queried_tokens = 0

    def generate(self, requests: Many[GenerationRequest]) -> Iterator[Sequence]:
        """Answer all requests; yields each sequence as it finishes.

        Where the iteration ends early, by an error or because the caller leaves it, requests
        without an answer are dropped and the session can be used again. Raises UsageError for a
        request that cannot be answered, and then answers none.
        """
        if self.scheduler.busy:
            raise RuntimeError("an earlier call has unanswered requests: finish or close it first")
        added: list[Sequence] = []
        try:
            for request in requests:
                added.append(self.scheduler.add(request))
            while self.scheduler.busy:
                yield from self.step()
        finally:
            for sequence in added:
                self.scheduler.drop(sequence)

    def step(self) -> list[Sequence]:
        """Run one step; returns the sequences that it finished.

        Where it fails, all requests are dropped before the error goes on.
        """
        try:
            return self._step()
        except BaseException:
            self._start_over()
            raise

    def _step(self) -> list[Sequence]:
        plan = self.scheduler.plan()
        if not plan:
            raise RuntimeError("no request can run: the cache is smaller than one request needs")
        self._restore()
        now = time.time()
        decode, prefill, snapshots = self._rows(plan, now)
        bounds = [self.acceptance(spec.sequence) for spec in decode]
        emissions = self.runner.run(decode, prefill, bounds, snapshots)
        self._advance_prefill(prefill)
        return self._absorb(emissions, {id(s.sequence): len(s.tokens) for s in decode})

    def _rows(
        self, plan: StepPlan, now: float
    ) -> tuple[list[RowSpec], list[RowSpec], list[tuple[int, int, int]]]:
        decode = [
            RowSpec(s, [s.tokens[s.computed], *s.drafts[:drafts]], s.computed)
            for s, drafts in plan.decode
        ]
        prefill: list[RowSpec] = []
        snapshots: list[tuple[int, int, int]] = []
        if self.prefix is not None:
            self.prefix.begin_step()
        for index, (s, size) in enumerate(plan.prefill):
            s.started = s.started or now
            prefill.append(RowSpec(s, s.tokens[s.computed : s.computed + size], s.computed))
            snapshots += self._snapshots(index, s, size)
        return decode, prefill, snapshots

    def _snapshots(self, index: int, sequence: Sequence, size: int) -> list[tuple[int, int, int]]:
        """Label the blocks that this chunk fills and plan their snapshots."""
        if self.prefix is None:
            return []
        block, start, found = self.options.block_size, sequence.computed, []
        for number in range(start // block, min((start + size) // block, len(sequence.keys))):
            slot = self.prefix.keep(sequence.blocks[number], sequence.keys[number])
            if slot is not None:
                found.append((index, ((number + 1) * block - start) // CHUNK, slot))
        return found

    def _restore(self) -> None:
        """Put admitted sequences' recurrent states in place: a snapshot, or zeros."""
        restores, self.scheduler.restores = self.scheduler.restores, []
        if not restores:
            return
        device = self.model.weights.embed.device
        slots = torch.tensor([s.slot for s, _ in restores], device=device)
        kept = torch.tensor([max(snapshot, 0) for _, snapshot in restores], device=device)
        fresh = torch.tensor([snapshot < 0 for _, snapshot in restores], device=device)
        for cache in self.caches.layers:
            if isinstance(cache, LinearCache):
                window = cache.kept_conv.shape[1]
                conv = cache.kept_conv[kept].masked_fill(fresh[:, None, None], 0.0)
                cache.conv[slots, :window] = conv
                state = cache.kept_state[kept].masked_fill(fresh[:, None, None, None], 0.0)
                cache.state[slots, 0] = state

    def _advance_prefill(self, prefill: list[RowSpec]) -> None:
        for spec in prefill:
            spec.sequence.computed += len(spec.tokens)
            spec.sequence.accepted = 0
            spec.sequence.prefilled = spec.sequence.computed == len(spec.sequence.tokens)

    def _absorb(self, emissions: list[Emission], widths: dict[int, int]) -> list[Sequence]:
        now, finished = time.time(), []
        for sequence, tokens, margins, accepted, drafts in emissions:
            width = widths.get(id(sequence))
            if width is not None:
                sequence.computed += accepted + 1
                sequence.accepted = accepted
                sequence.steps += 1
                sequence.drafted_tokens += width - 1
                sequence.accepted_tokens += accepted
                self.counters.count_verified(width - 1, accepted)
            sequence.first_token = sequence.first_token or now
            sequence.drafts = drafts
            advance_text(sequence, tokens, margins, self.vocabulary, self.model.config.eos_token_id)
            if sequence.finish_reason is not None:
                sequence.ended = now
                self.scheduler.finish(sequence)
                finished.append(sequence)
        return finished
