"""Schedules: order, budgets, preemption, and ten thousand random ones without a model."""

from __future__ import annotations

import os
import random

import pytest
from modelfree import ModelFree

from evalsuite.mini.blocks import BlockPool
from evalsuite.mini.scheduler import Limits, Scheduler
from evalsuite.mini.sequence import GenerationRequest, Sequence

# 10,000 take about 45 seconds on one core.
SCHEDULES = int(os.environ.get("EVALSUITE_SCHEDULES", "1000"))


def random_driver(dice: random.Random) -> ModelFree:
    """A session with small random limits; blocks are scarce in half of them."""
    k = dice.choice([0, 0, 1, 2, 3, 4, 5])
    longest = dice.choice([24, 48, 96])
    per_request = -(-(longest + k) // 16)
    seqs = dice.randint(1, 6)
    scarce = 1 + per_request + dice.randint(0, per_request)
    return ModelFree(
        dice,
        k=k,
        max_num_seqs=seqs,
        max_num_batched_tokens=dice.choice([16, 17, 20, 31, 32, 64, 128]),
        max_model_len=longest,
        num_blocks=dice.choice([None, scarce, scarce]),
        num_snapshots=dice.choice([1, 2, 5, 40]),
        prefix_caching=dice.random() < 0.8,
        shuffle_seed=dice.choice([None, dice.randrange(99)]),
    )


def random_prompt(dice: random.Random, longest: int, stems: list[list[int]]) -> list[int]:
    """A prompt that often shares its beginning with others."""
    stem = dice.choice(stems)[: dice.randint(0, longest)]
    rest = [dice.randint(1, 3) for _ in range(dice.randint(1, longest))]
    return (stem + rest)[: dice.choice([longest, longest // 3, 4])]


class Watch:
    """Runs a driver's steps and checks the books and the oldest request's progress in each."""

    def __init__(self, driver: ModelFree) -> None:
        self.session = driver.session
        self.open: list[Sequence] = []
        self.answered: list[Sequence] = []

    def step(self) -> None:
        """One step."""
        oldest = self.open[0]
        before = (oldest.computed, len(oldest.tokens))
        finished = self.session.step()
        self.session.scheduler.check()
        assert (oldest.computed, len(oldest.tokens)) > before, "the oldest request stands still"
        self.answered += finished
        self.open = [s for s in self.open if s.finish_reason is None]


def run_schedule(seed: int) -> tuple[ModelFree, list[Sequence]]:
    """One random schedule to its end, checked; returns the answers in their order."""
    dice = random.Random(seed)
    driver = random_driver(dice)
    watch, longest = Watch(driver), driver.session.options.max_model_len
    stems = [[dice.randint(1, 3) for _ in range(longest)] for _ in range(2)]
    total = dice.randint(1, 12)
    sequences: list[Sequence] = []
    while len(sequences) < total or driver.session.scheduler.busy:
        while len(sequences) < total and (not watch.open or dice.random() < 0.5):
            prompt = random_prompt(dice, longest - 1, stems)
            budget = dice.randint(1, longest - len(prompt))
            sequences.append(driver.add(str(len(sequences)), prompt, budget))
            watch.open.append(sequences[-1])
        watch.step()
    assert sorted(s.arrival for s in watch.answered) == list(range(total)), "answered once each"
    for sequence in sequences:
        assert sequence.emitted == sequence.request.max_tokens
    assert driver.session.pool.free_blocks == driver.session.pool.num_blocks - 1
    return driver, watch.answered


@pytest.mark.timeout(1800)
def test_random_schedules_answer_everyone_once_and_free_every_block() -> None:
    preemptions = hits = 0
    for seed in range(SCHEDULES):
        try:
            driver, _ = run_schedule(seed)
        except Exception as error:
            raise AssertionError(f"schedule {seed}: {error!r}") from error
        preemptions += driver.session.scheduler.preemptions
        hits += driver.session.prefix.hit_tokens if driver.session.prefix else 0
    print(f"{preemptions} preemptions, {hits} tokens found in the prefix cache")
    assert preemptions > SCHEDULES / 10, "too few schedules ran out of blocks"
    assert hits > SCHEDULES, "too few schedules met a cached prefix"


def test_a_schedule_repeats_for_the_same_order_and_seed() -> None:
    for seed in range(20):
        (first, answers), (second, others) = run_schedule(seed), run_schedule(seed)
        assert [s.arrival for s in answers] == [s.arrival for s in others]
        assert first.session.counters == second.session.counters
        assert first.rows == second.rows


def driver(**options: object) -> ModelFree:
    """A driver with fixed sizes."""
    sizes = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": 96, "k": 2}
    return ModelFree(random.Random(0), **{**sizes, **options})


def test_chunks_end_at_block_boundaries_and_prompts_share_a_step() -> None:
    made = driver(max_num_batched_tokens=40)
    first, second = made.add("a", [1] * 50, 4), made.add("b", [2] * 5, 4)
    plan = made.session.scheduler.plan()
    assert plan.prefill == [(first, 32), (second, 5)]


def test_decode_rows_come_before_prefill_chunks() -> None:
    made = driver(max_num_batched_tokens=16)
    first = made.add("a", [1] * 3, 20)
    made.session.step()
    second = made.add("b", [2] * 40, 4)
    plan = made.session.scheduler.plan()
    assert [s for s, _ in plan.decode] == [first]
    assert plan.prefill == [], "what is left of the budget is less than a block"
    assert list(made.session.scheduler.waiting) == [second], "others may yet compute its prefix"


def test_the_oldest_prompt_gets_its_chunk_though_younger_requests_decode() -> None:
    made = driver(k=0, max_num_batched_tokens=17)
    oldest, young = made.add("a", [1] * 60, 4), made.add("b", [2], 30)
    other = made.add("c", [3], 30)
    made.session.step()
    for _ in range(3):
        before = oldest.computed
        made.session.step()
        assert oldest.computed > before
    assert young.emitted and not other.finish_reason


def test_the_youngest_gives_way_and_is_answered_all_the_same() -> None:
    made = driver(k=0, num_blocks=5, max_num_seqs=2, max_model_len=64)
    old, young = made.add("a", [1] * 31, 30), made.add("b", [2] * 31, 20)
    finished: list[Sequence] = []
    while made.session.scheduler.busy:
        finished += made.session.step()
        assert old in [*made.session.scheduler.running, *finished]
    assert finished == [old, young]
    assert made.session.scheduler.preemptions == 1


def test_a_preempted_request_goes_before_later_ones() -> None:
    made = driver(k=0, num_blocks=5, max_num_seqs=2, max_model_len=64)
    for name in "abc":
        made.add(name, [ord(name) % 7 + 1] * 31, 25)
    order = []
    while made.session.scheduler.busy:
        order += [s.request.request_id for s in made.session.step()]
    assert order == ["a", "b", "c"]


def test_hits_are_counted_once_however_long_admission_waits() -> None:
    made = driver(k=0, num_blocks=5, max_num_seqs=2, max_model_len=64)
    stem = [1] * 33
    made.add("a", stem, 30)
    made.session.step()
    made.add("b", [*stem, *[3] * 30], 1)
    while made.session.scheduler.busy:
        made.session.step()
    assert made.session.prefix is not None
    assert made.session.prefix.hit_tokens == 32
    assert made.session.prefix.queried_tokens == 33 + 63


def test_waiting_requests_are_admitted_together() -> None:
    """With admit_batch 3 no prefill starts for one or two free slots while more than that wait."""
    limits = Limits(6, 1024, 64, 16, 0, admit_batch=3)
    scheduler = Scheduler(limits, BlockPool(100), None, 512)
    for number in range(10):
        scheduler.add(GenerationRequest(str(number), (3, 4, 5), 8))
    assert len(scheduler.plan().prefill) == 6
    for sequence in list(scheduler.running):
        sequence.computed, sequence.prefilled = len(sequence.tokens), True
        sequence.tokens.append(9)
    for expected in (0, 0, 3):
        scheduler.finish(scheduler.running[0])
        assert len(scheduler.plan().prefill) == expected
