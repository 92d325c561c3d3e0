"""The prefix cache: what a hit gives is what computing it again would give."""

from __future__ import annotations

import pytest
from test_rowwise import reference
from tiny import prompt, request, tiny_model, tiny_session
from truth import Observer, drain

from evalsuite.mini.blocks import BlockPool
from evalsuite.mini.engine import Session
from evalsuite.mini.forced import alternate
from evalsuite.mini.prefix import PrefixCache


def hit_tokens(session: Session) -> int:
    """Prompt tokens that were found."""
    assert session.prefix is not None
    return session.prefix.hit_tokens


def ask(watch: Observer, name: str, ids: list[int], budget: int = 5) -> list[int]:
    """Answer one request, all of it checked against the request alone; its emitted tokens."""
    sequence = watch.session.scheduler.add(request(name, ids, budget))
    drain(watch)
    return sequence.tokens[len(ids) :]


def watched(k: int, **options: object) -> Observer:
    """An observed session."""
    session = tiny_session(tiny_model(), k=k, **options)
    session.acceptance = alternate(k)
    return Observer(session, reference(tiny_model(), k, True))


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("length", [16, 17, 32, 33, 50])
def test_a_hit_equals_computing_again_after_unrelated_traffic(k: int, length: int) -> None:
    watch, ids = watched(k), prompt(length, 9)
    ask(watch, "first", ids)
    for i in range(3):
        ask(watch, f"traffic {i}", prompt(21 + i, 50 + i), 12)
    before = hit_tokens(watch.session)
    ask(watch, "again", ids)
    assert hit_tokens(watch.session) - before == (length - 1) // 16 * 16


@pytest.mark.parametrize("k", [0, 2])
def test_prompts_that_part_behind_a_block_share_only_what_both_layers_agree_on(k: int) -> None:
    watch, stem = watched(k), prompt(32, 4)
    ask(watch, "a", [*stem, 7, 8, 9])
    ask(watch, "b", [*stem, 11, 8, 9])
    # The MTP row at the stem's end is made from the token behind it, so one block is shared.
    assert hit_tokens(watch.session) == 16
    ask(watch, "c", [*stem, 7, 30])
    assert hit_tokens(watch.session) == 16 + 32


def test_keys_chain_over_everything_before_and_the_token_behind() -> None:
    cache = PrefixCache(BlockPool(4), 16, 4)
    ids = prompt(49, 1)
    keys = cache.block_keys(ids)
    assert len(keys) == len(set(keys)) == 3
    assert cache.block_keys(ids[:48]) == keys[:2]
    assert cache.block_keys(ids[:33]) == keys[:2]
    assert cache.block_keys(ids[:16]) == []
    for changed, same in [(0, 0), (16, 0), (17, 1), (32, 1), (47, 2), (48, 2)]:
        other = [*ids[:changed], 95 - ids[changed], *ids[changed + 1 :]]
        pairs = zip(cache.block_keys(other), keys, strict=True)
        assert [a == b for a, b in pairs] == [i < same for i in range(3)]


def test_ids_are_hashed_apart() -> None:
    cache = PrefixCache(BlockPool(4), 16, 4)
    assert cache.block_keys([1, 23] * 8 + [5]) != cache.block_keys([12, 3] * 8 + [5])


def test_a_block_handed_out_again_is_no_longer_found() -> None:
    pool = BlockPool(3)
    cache = PrefixCache(pool, 16, 4)
    blocks = pool.take(1)
    assert cache.keep(blocks[0], b"key") is not None
    pool.release(blocks)
    pool.take(2)
    assert cache.find([b"key"]) is None
    assert sorted(cache._free) == [0, 1, 2, 3]


def test_a_prefix_without_its_state_is_no_hit() -> None:
    pool = BlockPool(6)
    cache = PrefixCache(pool, 16, 1)
    first, second = pool.take(2)
    assert cache.keep(first, b"1") == 0
    cache.begin_step()
    assert cache.keep(second, b"2") == 0
    hit = cache.find([b"1", b"2"])
    assert hit is not None
    assert (hit.blocks, hit.snapshot) == ([first, second], 0)
    pool.release(reversed(hit.blocks))
    assert cache.find([b"1"]) is None, "its snapshot made room"


def test_the_least_recently_used_snapshot_makes_room() -> None:
    pool = BlockPool(6)
    cache = PrefixCache(pool, 16, 2)
    one, two, three = pool.take(3)
    cache.keep(one, b"1")
    cache.keep(two, b"2")
    cache.begin_step()
    hit = cache.find([b"1"])
    assert hit is not None
    cache.keep(three, b"3")
    assert cache.find([b"2"]) is None
    assert cache.find([b"1"]) is not None
    assert cache.find([b"3"]) is not None


def test_a_lost_snapshot_is_made_again_by_the_next_request() -> None:
    watch, ids = watched(0, num_snapshots=1), prompt(17, 9)
    ask(watch, "first", ids)
    ask(watch, "other", prompt(17, 8))
    ask(watch, "second", ids)
    assert hit_tokens(watch.session) == 0
    ask(watch, "third", ids)
    assert hit_tokens(watch.session) == 16


@pytest.mark.parametrize("snapshots", [1, 2, 3])
def test_one_step_with_more_boundaries_than_snapshots(snapshots: int) -> None:
    watch = watched(2, num_snapshots=snapshots, max_num_batched_tokens=256)
    ids = prompt(60, 2)
    for round_number in range(2):
        for i in range(4):
            watch.session.scheduler.add(request(f"{i}", [*ids[: 20 + 12 * i], 1 + i], 4))
        drain(watch)
        for i in range(2):
            ask(watch, f"later {round_number} {i}", [*ids[: 33 + 9 * i], 40 + i])


def test_the_few_shot_prefix_is_computed_once() -> None:
    session = tiny_session(tiny_model(), k=1, max_num_batched_tokens=128, max_num_seqs=4)
    stem = prompt(80, 3)
    computed = 0
    real_run = session.runner.run

    def run(decode, prefill, bounds, snapshots):  # type: ignore[no-untyped-def]
        nonlocal computed
        computed += sum(len(spec.tokens) for spec in prefill)
        return real_run(decode, prefill, bounds, snapshots)

    session.runner.run = run  # type: ignore[method-assign]
    requests = [request(str(i), [*stem, *prompt(3 + i, i)], 4) for i in range(12)]
    assert len(list(session.generate(requests))) == 12
    own = sum(len(r.prompt) for r in requests)
    assert session.prefix is not None
    assert session.prefix.queried_tokens == own
    assert computed == own - session.prefix.hit_tokens
    # The prefix's last block is each request's own: its key holds the token behind it. A request
    # that starts in the prefix's own step computes it too; nobody else does.
    assert session.prefix.hit_tokens >= 10 * 64


def test_without_prefix_caching_nothing_is_shared() -> None:
    session = tiny_session(tiny_model(), prefix_caching=False)
    ids = prompt(40, 3)
    first, second = ([s.tokens for s in session.generate([request(name, ids, 4)])] for name in "ab")
    assert first == second
    assert session.prefix is None
