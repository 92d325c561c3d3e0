"""What shapes a session of the miniature's engine."""

from __future__ import annotations

from dataclasses import dataclass

from evalsuite.errors import UsageError
from evalsuite.mini.model.delta_rule import BLOCK as CHUNK

MAX_DRAFTS = 5


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """All that shapes a session. Sizes in tokens, blocks or requests.

    `num_blocks` None: enough for every request at its longest. `graph_batches` empty: a ladder up
    to `max_num_seqs`. `admit_batch`: waiting requests that are admitted together. `shuffle_seed`
    hands freed blocks out in random order (tests).
    """

    k: int = 0
    graph: bool = False
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    max_model_len: int = 1024
    block_size: int = 16
    num_blocks: int | None = None
    admit_batch: int = 1
    num_snapshots: int = 256
    prefix_caching: bool = True
    graph_batches: tuple[int, ...] = ()
    share_slots: bool = True
    fused_drafts: bool = True
    shuffle_seed: int | None = None

    def validate(self, kpool: int, has_mtp: bool) -> None:
        """Raise UsageError naming the option that does not fit."""
        checks = {
            "k": not 0 <= self.k <= MAX_DRAFTS and f"{self.k} is not in 0 .. {MAX_DRAFTS}",
            "mtp": self.k > 0 and not has_mtp and "the checkpoint has no MTP layer to draft with",
            "max_num_seqs": self.max_num_seqs < 1 and "at least 1 is needed",
            "max_model_len": self.max_model_len < 2 and "at least 2 is needed",
            "block_size": (self.block_size < kpool or self.block_size % CHUNK != 0)
            and f"{self.block_size} is not a multiple of {CHUNK}",
            "admit_batch": not 1 <= self.admit_batch <= self.max_num_seqs
            and f"{self.admit_batch} is not in 1 .. max_num_seqs",
            "num_blocks": self.num_blocks is not None
            and self.num_blocks < 2
            and "at least 2 are needed",
            "graph_batches": bool(self.graph_batches)
            and min(self.graph_batches) < 1
            and "sizes start at 1",
            "num_snapshots": self.num_snapshots < 1 and "at least 1 is needed",
        }
        for field, problem in checks.items():
            if problem:
                raise UsageError(f"session option {field}: {problem}")

    @property
    def blocks_per_request(self) -> int:
        """Blocks of a request at its longest, with its drafts."""
        return -(-(self.max_model_len + self.k) // self.block_size)

    def ladder(self) -> tuple[int, ...]:
        """Padded batch sizes: the given ones, or powers of two up to the request limit."""
        if not self.graph:
            return ()
        if self.graph_batches:
            return self.graph_batches
        sizes, size = [], 1
        while size < self.max_num_seqs:
            sizes.append(size)
            size *= 2
        return (*sizes, self.max_num_seqs)
