"""The block allocator: free list, reference counts, blocks shared by hash."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable


class OutOfBlocks(Exception):
    """No free block is left; the scheduler preempts."""


class BlockPool:
    """Blocks 1 .. num_blocks - 1 (block 0 is reserved).

    A freed block keeps its hash and its content until it is handed out again, and can be found by
    its hash until then. Free blocks go out oldest first, or in the order of `shuffle`'s dice.
    """

    def __init__(self, num_blocks: int, shuffle: random.Random | None = None) -> None:
        self.num_blocks = num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._references = [0] * num_blocks
        self._hash_of: dict[int, bytes] = {}
        self._by_hash: dict[bytes, int] = {}
        self._shuffle = shuffle
        self.on_evict: Callable[[int], None] = lambda block: None

    @property
    def free_blocks(self) -> int:
        """Blocks that `take` can still hand out."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Hand out `count` blocks, or none: raises OutOfBlocks."""
        if count > len(self._free):
            raise OutOfBlocks(f"{count} blocks asked, {len(self._free)} free")
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> int:
        if self._shuffle is None:
            block, _ = self._free.popitem(last=False)
        else:
            block = self._shuffle.choice(list(self._free))
            del self._free[block]
        self._forget(block)
        self._references[block] = 1
        return block

    def _forget(self, block: int) -> None:
        key = self._hash_of.pop(block, None)
        if key is not None:
            del self._by_hash[key]
            self.on_evict(block)

    def find(self, key: bytes) -> int | None:
        """The block with this hash, in use or free."""
        return self._by_hash.get(key)

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to blocks that `find` returned."""
        for block in blocks:
            self._free.pop(block, None)
            self._references[block] += 1

    def label(self, block: int, key: bytes) -> None:
        """Make a full block findable, in place of another one with this hash."""
        other = self._by_hash.get(key)
        if other == block:
            return
        for known in (block, other):
            if known is not None:
                self._forget(known)
        self._by_hash[key] = block
        self._hash_of[block] = key

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference of each block; unreferenced blocks become free.

        Give a request's blocks last first: its oldest block, which most others share, is then the
        last to be handed out again.
        """
        for block in blocks:
            if self._references[block] < 1:
                raise ValueError(f"block {block} is released but nobody holds it")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None

    def check(self, held: Iterable[Iterable[int]]) -> None:
        """Raise AssertionError unless the books agree with what requests hold."""
        counts = [0] * self.num_blocks
        for blocks in held:
            for block in blocks:
                counts[block] += 1
        assert counts == self._references, "reference counts differ from the blocks held"
        assert counts[0] == 0 and 0 not in self._free, "block 0 was handed out"
        free = {block for block in range(1, self.num_blocks) if counts[block] == 0}
        assert free == set(self._free), "free list differs from unreferenced blocks"
        assert all(self._by_hash[key] == block for block, key in self._hash_of.items())
        assert len(self._by_hash) == len(self._hash_of)
