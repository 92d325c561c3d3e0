"""The prefix cache: blocks found by hash together with the recurrent state at their end.

A hybrid model can reuse a prefix only where both are there. A block's hash chains over all
tokens before it and includes the one token *after* it: the MTP layer's row at a position is made
from the next token too, so two blocks with equal tokens and different successors differ.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from evalsuite.mini.blocks import BlockPool


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """Shared blocks, already referenced, and the snapshot of the state behind them."""

    blocks: list[int]
    snapshot: int


class PrefixCache:
    """Maps block ends to snapshot slots; the oldest snapshots make room for new ones."""

    def __init__(self, pool: BlockPool, block_size: int, num_snapshots: int) -> None:
        self.pool = pool
        self.block_size = block_size
        self._free = list(range(num_snapshots))
        self._snapshot_of: OrderedDict[int, int] = OrderedDict()
        self.hit_tokens = 0
        self.queried_tokens = 0
        self._new: set[int] = set()
        pool.on_evict = self._drop

    def block_keys(self, tokens: Tokens[int]) -> list[bytes]:
        """Hash of every full block of `tokens` that has a successor token."""
        keys, key, size = [], b"", self.block_size
        for end in range(size, len(tokens), size):
            digest = hashlib.sha256(key)
            digest.update(b",".join(str(t).encode() for t in tokens[end - size : end + 1]))
            key = digest.digest()
            keys.append(key)
        return keys

    def find(self, keys: list[bytes]) -> PrefixHit | None:
        """The longest reusable prefix; takes references on its blocks."""
        chain: list[int] = []
        for key in keys:
            block = self.pool.find(key)
            if block is None:
                break
            chain.append(block)
        while chain and chain[-1] not in self._snapshot_of:
            chain.pop()
        if not chain:
            return None
        self._snapshot_of.move_to_end(chain[-1])
        self.pool.share(chain)
        return PrefixHit(chain, self._snapshot_of[chain[-1]])

    def count(self, tokens: int, blocks: int) -> None:
        """Count an admitted request of `tokens` tokens, `blocks` blocks of which were shared."""
        self.queried_tokens += tokens
        self.hit_tokens += blocks * self.block_size

    def keep(self, block: int, key: bytes) -> int | None:
        """Label a full block and give a snapshot slot for the state at its end.

        None when the prefix that ends there has its snapshot already, or when all slots went to
        this step's earlier blocks: of many new prompts at once the first keep theirs, and with
        them the prefix that all of them share.
        """
        known = self.pool.find(key)
        if known is not None and known in self._snapshot_of:
            return None
        self.pool.label(block, key)
        if not self._free:
            oldest = next(iter(self._snapshot_of))
            if oldest in self._new:
                return None
            self._free.append(self._snapshot_of.pop(oldest))
        self._snapshot_of[block] = self._free.pop()
        self._new.add(block)
        return self._snapshot_of[block]

    def begin_step(self) -> None:
        """Let the snapshots of earlier steps make room again."""
        self._new.clear()

    def _drop(self, block: int) -> None:
        slot = self._snapshot_of.pop(block, None)
        if slot is not None:
            self._free.append(slot)
