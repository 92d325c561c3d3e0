"""Continuous batching: which rows run in the next step.

Running requests go first, each with its pending token and its drafts; what is left of the token
budget goes to prefill chunks, oldest request first. The oldest request gets on in every step: one
block's worth of the budget is its own while its prompt is being computed. When blocks run out, the
youngest running request is preempted: it gives up its blocks and is computed again later. The
order depends only on arrival, never on time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from evalsuite.errors import UsageError
from evalsuite.mini.blocks import BlockPool, OutOfBlocks
from evalsuite.mini.prefix import PrefixCache
from evalsuite.mini.sequence import GenerationRequest, Sequence, check_request


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes of one session; `k` is the number of drafts per step.

    Drafting writes up to k - 1 positions behind the newest token, which need blocks too: without
    them a draft row would read the reserved block in place of earlier drafts.

    Waiting requests are admitted once `admit_batch` of them, or all that wait, have a slot: a
    prefill chunk runs outside the captured steps, and a few long ones cost less than many short.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    block_size: int
    k: int
    admit_batch: int = 1

    def blocks_for(self, tokens: int) -> int:
        """Blocks of a request of `tokens` tokens with the drafts behind them."""
        return -(-(tokens + max(0, self.k - 1)) // self.block_size)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """decode: (sequence, drafts to verify); prefill: (sequence, chunk length)."""

    decode: list[tuple[Sequence, int]]
    prefill: list[tuple[Sequence, int]]

    def __bool__(self) -> bool:
        return bool(self.decode or self.prefill)


class Scheduler:
    """Owns the requests of a session from arrival to release."""

    def __init__(
        self, limits: Limits, pool: BlockPool, prefix: PrefixCache | None, vocab_size: int
    ) -> None:
        if limits.max_num_batched_tokens < limits.block_size:
            raise UsageError("field max_num_batched_tokens: smaller than one block")
        self.limits = limits
        self.pool = pool
        self.prefix = prefix
        self.vocab_size = vocab_size
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.restores: list[tuple[Sequence, int]] = []
        self.preemptions = 0
        self._slots = list(range(limits.max_num_seqs, 0, -1))
        self._ids: set[str] = set()
        self._arrivals = 0
        self._tenancies = 0

    def add(self, request: GenerationRequest) -> Sequence:
        """Queue a request. Raises UsageError for one that can never be answered."""
        check_request(request, self.limits.max_model_len, self.vocab_size)
        if request.request_id in self._ids:
            raise UsageError(f"request {request.request_id}: field request_id: already in progress")
        if (
            self.limits.blocks_for(len(request.prompt) + request.max_tokens)
            > self.pool.num_blocks - 1
        ):
            raise UsageError(
                f"request {request.request_id}: field prompt: more tokens than the cache can hold"
            )
        self._ids.add(request.request_id)
        sequence = Sequence(request, self._arrivals, list(request.prompt))
        self._arrivals += 1
        if self.prefix is not None:
            sequence.keys = self.prefix.block_keys(request.prompt)
        self.waiting.append(sequence)
        return sequence

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting or self.running)

    def plan(self) -> StepPlan:
        """Choose the rows of the next step and allocate what they write."""
        budget = self.limits.max_num_batched_tokens
        held = self._oldest_chunk()
        decode: list[tuple[Sequence, int]] = []
        for sequence in [s for s in self.running if s.prefilled]:
            if sequence.slot == 0:
                continue  # preempted for an older one in this very step
            drafts = self._drafts_to_verify(sequence)
            if 1 + drafts > budget - held:
                break
            if self._reserve(sequence, sequence.computed + 1 + drafts):
                decode.append((sequence, drafts))
                budget -= 1 + drafts
        decode = [(s, n) for s, n in decode if s.slot != 0]
        return StepPlan(decode, self._plan_prefill(budget))

    def _oldest_chunk(self) -> int:
        """Tokens held back for the oldest request's next chunk, lest younger ones starve it."""
        if not self.running or self.running[0].prefilled:
            return 0
        oldest = self.running[0]
        return min(self.limits.block_size, len(oldest.tokens) - oldest.computed)

    def _drafts_to_verify(self, sequence: Sequence) -> int:
        return max(0, min(len(sequence.drafts), sequence.remaining - 1))

    def _reserve(self, sequence: Sequence, tokens: int) -> bool:
        """Get blocks for `tokens`, at others' cost; False if the sequence gave way itself."""
        while True:
            need = self.limits.blocks_for(tokens) - len(sequence.blocks)
            try:
                if need > 0:
                    sequence.blocks += self.pool.take(need)
                return True
            except OutOfBlocks:
                youngest = max(self.running, key=lambda s: s.arrival)
                self._preempt(youngest)
                if youngest is sequence:
                    return False

    def _preempt(self, sequence: Sequence) -> None:
        self.preemptions += 1
        self.running.remove(sequence)
        self.pool.release(reversed(sequence.blocks))
        self._slots.append(sequence.slot)
        sequence.slot, sequence.blocks, sequence.computed = 0, [], 0
        sequence.prefilled, sequence.accepted, sequence.drafts = False, 0, []
        self.waiting.appendleft(sequence)

    def _plan_prefill(self, budget: int) -> list[tuple[Sequence, int]]:
        chunks: list[tuple[Sequence, int]] = []
        for sequence in [s for s in self.running if not s.prefilled]:
            budget = self._chunk(sequence, budget, chunks)
        if self._free_slots < min(self.limits.admit_batch, len(self.waiting)):
            return chunks
        while self.waiting and budget > 0 and self._free_slots > 0:
            if not self._admit(self.waiting[0], budget):
                break
            budget = self._chunk(self.running[-1], budget, chunks)
        return chunks

    @property
    def _free_slots(self) -> int:
        return self.limits.max_num_seqs - len(self.running)

    def _admit(self, sequence: Sequence, budget: int) -> bool:
        """Move the first waiting sequence to the running ones, with blocks for all its tokens.

        Not before its first chunk fits the budget: until then others may still compute its prefix.
        """
        hit = self.prefix.find(sequence.keys) if self.prefix else None
        shared = hit.blocks if hit else []
        computed = len(shared) * self.limits.block_size
        need = self.limits.blocks_for(len(sequence.tokens)) - len(shared)
        if not self._chunk_size(sequence, computed, budget) or need > self.pool.free_blocks:
            self.pool.release(reversed(shared))
            return False
        fresh = self.pool.take(need)
        if self.prefix is not None:
            self.prefix.count(len(sequence.tokens), len(shared))
        self.waiting.popleft()
        sequence.blocks, sequence.slot = shared + fresh, self._slots.pop()
        sequence.tenancy, self._tenancies = self._tenancies, self._tenancies + 1
        sequence.computed = computed
        self.restores.append((sequence, hit.snapshot if hit else -1))
        self.running.append(sequence)
        return True

    def _chunk(self, sequence: Sequence, budget: int, chunks: list[tuple[Sequence, int]]) -> int:
        size = self._chunk_size(sequence, sequence.computed, budget)
        if not size:
            return 0
        chunks.append((sequence, size))
        return budget - size

    def _chunk_size(self, sequence: Sequence, computed: int, budget: int) -> int:
        """Tokens of the next chunk; all chunks but the last end at a block boundary."""
        left = len(sequence.tokens) - computed
        if left <= budget:
            return left
        return max(0, budget - (computed + budget) % self.limits.block_size)

    def finish(self, sequence: Sequence) -> None:
        """Release everything that a finished sequence holds."""
        self.running.remove(sequence)
        self.pool.release(reversed(sequence.blocks))
        self._slots.append(sequence.slot)
        self._ids.discard(sequence.request.request_id)
        sequence.blocks, sequence.slot = [], 0

    def drop(self, sequence: Sequence) -> None:
        """Give up a request, if it is still here."""
        if sequence in self.running:
            self.finish(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
            self._ids.discard(sequence.request.request_id)

    def check(self) -> None:
        """Raise AssertionError unless blocks and slots add up."""
        self.pool.check([s.blocks for s in self.running])
        slots = [s.slot for s in self.running]
        assert sorted(slots + self._slots) == list(range(1, self.limits.max_num_seqs + 1))
