"""The block allocator: a random walk against plain books, and its single rules."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from evalsuite.mini.blocks import BlockPool, OutOfBlocks

BLOCKS = 9


class Walk(RuleBasedStateMachine):
    """Holders take, share, label and release blocks in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, random.Random(5))
        self.evicted: list[int] = []
        self.pool.on_evict = self.evicted.append
        self.held: list[list[int]] = []
        self.named: dict[bytes, int] = {}

    @rule(count=st.integers(0, BLOCKS + 1))
    def take(self, count: int) -> None:
        free = self.pool.free_blocks
        self.evicted.clear()
        if count > free:
            with pytest.raises(OutOfBlocks):
                self.pool.take(count)
            assert self.pool.free_blocks == free
            assert not self.evicted
            return
        blocks = self.pool.take(count)
        assert len(set(blocks)) == count
        lost = {block for block in blocks if block in self.named.values()}
        assert set(self.evicted) == lost
        self.named = {key: b for key, b in self.named.items() if b not in lost}
        self.held.append(blocks)

    @precondition(lambda self: any(self.held))
    @rule(data=st.data(), key=st.sampled_from([b"a", b"b", b"c", b"d"]))
    def label(self, data: st.DataObject, key: bytes) -> None:
        block = data.draw(st.sampled_from([b for blocks in self.held for b in blocks]))
        self.pool.label(block, key)
        self.named = {k: b for k, b in self.named.items() if b != block} | {key: block}

    @precondition(lambda self: bool(self.named))
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = self.pool.find(data.draw(st.sampled_from(sorted(self.named))))
        assert block is not None
        self.pool.share([block])
        self.held.append([block])

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        blocks = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.pool.release(reversed(blocks))

    @invariant()
    def books_agree(self) -> None:
        self.pool.check(self.held)
        assert {key: self.pool.find(key) for key in self.named} == self.named
        in_use = {block for blocks in self.held for block in blocks}
        assert self.pool.free_blocks == BLOCKS - 1 - len(in_use)


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    deadline=None, derandomize=True, max_examples=60, stateful_step_count=40
)


def test_block_zero_is_never_handed_out() -> None:
    assert sorted(BlockPool(5).take(4)) == [1, 2, 3, 4]


def test_freed_blocks_go_out_oldest_first() -> None:
    pool = BlockPool(5)
    first = pool.take(4)
    pool.release([first[2], first[0]])
    assert pool.take(2) == [first[2], first[0]]


def test_shuffled_order_differs_and_repeats() -> None:
    orders = [BlockPool(40, random.Random(seed)).take(39) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert orders[0] != sorted(orders[0])


def test_a_block_released_twice_is_an_error() -> None:
    pool = BlockPool(3)
    blocks = pool.take(1)
    pool.release(blocks)
    with pytest.raises(ValueError, match="nobody holds it"):
        pool.release(blocks)


@pytest.mark.parametrize("damage", ["lost", "leaked", "foreign name"])
def test_check_sees_damage(damage: str) -> None:
    pool = BlockPool(5)
    held = [pool.take(2)]
    pool.label(held[0][0], b"a")
    pool.check(held)
    if damage == "lost":
        held[0] = held[0][:1]
    elif damage == "leaked":
        pool._free.popitem()
    else:
        pool._by_hash[b"b"] = 2
    with pytest.raises(AssertionError):
        pool.check(held)
