"""The indexer's kernels against their references: scores, top-k, pools and rings, fitting."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from sparse_mla import fit, indexer, indexer_reference, kpool, topk

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
KPOOL, BLOCK_SIZE, DIM = 4, 16, 8
PER_BLOCK = BLOCK_SIZE // KPOOL
# The interpreter takes a second for an example: failures are shown as found, not shrunk.
EXAMPLES = settings(
    deadline=None, max_examples=15, derandomize=True, phases=(Phase.explicit, Phase.generate)
)


class Step(NamedTuple):
    """Rows of one step: request b has rows starts[b] .. starts[b + 1] - 1, the last ones padded."""

    positions: Tensor
    row_request: Tensor
    starts: Tensor
    tables: Tensor


def step(contexts: list[int], rows: list[int], padded: list[int], seed: int) -> Step:
    """Requests with so many tokens before the step, rows in it, and padded rows behind them."""
    dice = torch.Generator().manual_seed(seed)
    longest = max(c + r for c, r in zip(contexts, rows, strict=True))
    blocks = -(-longest // BLOCK_SIZE)
    tables = 1 + torch.randperm(len(rows) * blocks + 3, generator=dice)[: len(rows) * blocks]
    positions, requests, starts = [], [], [0]
    for b, (context, count, empty) in enumerate(zip(contexts, rows, padded, strict=True)):
        positions += [*range(context, context + count), *[-1] * empty]
        requests += [b] * (count + empty)
        starts.append(starts[-1] + count + empty)
    return Step(
        torch.tensor(positions, device=DEVICE),
        torch.tensor(requests, device=DEVICE),
        torch.tensor(starts, device=DEVICE),
        tables.view(len(rows), blocks).to(DEVICE),
    )


STEPS = st.lists(
    st.tuples(st.integers(0, 90), st.integers(1, 12), st.integers(0, 2)), min_size=1, max_size=3
)


def drawn(requests: list[tuple[int, int, int]], seed: int) -> Step:
    """A step from a strategy's draw."""
    contexts, rows, padded = (list(part) for part in zip(*requests, strict=True))
    return step(contexts, rows, padded, seed)


def inputs(at: Step, heads: int, seed: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Arguments of pool_scores. Pools that no table names hold NaN."""
    dice = torch.Generator().manual_seed(seed)
    rows = len(at.positions)
    pool = torch.full(((int(at.tables.max()) + 2) * PER_BLOCK, DIM), math.nan)
    named = (at.tables.cpu().flatten().unsqueeze(1) * PER_BLOCK + torch.arange(PER_BLOCK)).flatten()
    pool[named] = torch.randn(len(named), DIM, generator=dice)
    return {
        "query": torch.randn(rows, heads, DIM, generator=dice).to(DEVICE, dtype),
        "weights": torch.randn(rows, heads, generator=dice).to(DEVICE),
        "pool": pool.to(DEVICE, dtype),
        "block_tables": at.tables,
        "positions": at.positions,
        "query_start_loc": at.starts,
        "scale": DIM**-0.5,
        "kpool": KPOOL,
        "pools_per_block": PER_BLOCK,
    }


def on_cpu(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same arguments for a reference."""
    return {k: v.cpu() if isinstance(v, Tensor) else v for k, v in arguments.items()}


def widest(at: Step) -> int:
    """Most rows of one request."""
    return int((at.starts[1:] - at.starts[:-1]).max())


@pytest.fixture(autouse=True)
def poisoned_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are allocated full of what no kernel would write."""
    plain = torch.empty

    def empty(*shape: Any, **options: Any) -> Tensor:
        made = plain(*shape, **options)
        return made.fill_(math.nan if made.is_floating_point() else 77_777_777)

    monkeypatch.setattr(torch, "empty", empty)


@EXAMPLES
@given(requests=STEPS, heads=st.sampled_from([1, 3, 16]), seed=st.integers(0, 99))
def test_scores_of_ragged_rows(requests: list[tuple[int, int, int]], heads: int, seed: int) -> None:
    at = drawn(requests, seed)
    arguments = inputs(at, heads, seed)
    found = indexer.pool_scores(**arguments, max_query_len=widest(at)).cpu()
    expected = indexer_reference.pool_scores(**on_cpu(arguments))
    assert torch.equal(torch.isneginf(found), torch.isneginf(expected))
    assert not found.isnan().any()
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def test_scores_of_half_precision_keys() -> None:
    at = step([61, 7], [6, 2], [0, 0], 3)
    arguments = inputs(at, 16, 3, torch.float16)
    found = indexer.pool_scores(**arguments, max_query_len=6).cpu()
    expected = indexer_reference.pool_scores(**on_cpu(arguments))
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=2e-5)


def test_a_row_scores_the_same_alone_in_a_batch_and_in_a_block() -> None:
    at = step([61, 30], [6, 2], [0, 0], 5)
    arguments = inputs(at, 16, 5)
    together = indexer.pool_scores(**arguments, max_query_len=6)
    for row in range(6):
        one = {
            **arguments,
            "query": arguments["query"][row : row + 1],
            "weights": arguments["weights"][row : row + 1],
            "positions": at.positions[row : row + 1],
            "block_tables": at.tables[:1],
            "query_start_loc": torch.tensor([0, 1], device=DEVICE),
        }
        alone = indexer.pool_scores(**one, max_query_len=1)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": torch.zeros(8, 3)}, "weights is"),
        ({"weights": torch.zeros(8, 16).double()}, "expected float32"),
        ({"positions": torch.zeros(3)}, "positions is"),
        ({"query_start_loc": torch.zeros(2)}, "query_start_loc is"),
        ({"pool": torch.zeros(40, 9)}, "pool is"),
        ({"pool": torch.zeros(40, DIM).half()}, "query is torch.float32 and the pool"),
        ({"pool": torch.zeros(DIM, 40).T}, "contiguous"),
    ],
)
def test_arguments_of_scores_that_disagree(change: dict[str, Tensor], message: str) -> None:
    arguments = inputs(step([61, 7], [6, 2], [0, 0], 3), 16, 3)
    with pytest.raises(ValueError, match=message):
        indexer.pool_scores(**{**arguments, **change}, max_query_len=6)


SCORES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e-38, -3e38, 7.0, math.inf])


@EXAMPLES
@given(
    data=st.data(),
    pool_size=st.sampled_from([2, 3, 4, 8]),
    wanted=st.integers(1, 9),
    extra=st.integers(0, 2),
    slots=st.booleans(),
    block=st.sampled_from([16, 32]),
)
def test_the_best_pools_and_the_tail(
    data: st.DataObject, pool_size: int, wanted: int, extra: int, slots: bool, block: int
) -> None:
    rows = data.draw(st.integers(1, 3))
    pools = 8 * data.draw(st.integers(1, 5))
    values = data.draw(st.lists(SCORES, min_size=rows * pools, max_size=rows * pools))
    tokens = pools * pool_size
    at = data.draw(st.lists(st.integers(-1, tokens - 1), min_size=rows, max_size=rows))
    top = wanted * pool_size + min(extra, pool_size - 1)
    arguments: dict[str, Any] = {"topk": top, "kpool": pool_size, "empty": 0 if slots else -1}
    if slots:
        size = pool_size * 2
        tables = 1 + torch.arange(2 * tokens // size).flip(0).view(2, -1)
        requests = torch.arange(rows) % 2
        arguments |= {"block_tables": tables, "row_request": requests, "block_size": size}
    scores = torch.tensor(values).view(rows, pools)
    positions = torch.tensor(at)
    expected = indexer_reference.select_keys(scores, positions, **arguments)
    moved = {k: v.to(DEVICE) if isinstance(v, Tensor) else v for k, v in arguments.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topk, "BLOCK", block)
        found = topk.select_keys(scores.to(DEVICE), positions.to(DEVICE), **moved)
    assert found.dtype == torch.int32
    assert torch.equal(found.cpu().long(), expected)


def test_ties_go_to_the_lower_pool_in_every_call() -> None:
    scores = torch.ones(2, 4096, device=DEVICE)
    scores[0, 3000] = 2.0
    positions = torch.tensor([4096 * 4 - 1, 4096 * 4 - 2], device=DEVICE)
    first = topk.select_keys(scores, positions, topk=32, kpool=4)
    assert first[0, ::4].tolist() == [12000, *range(0, 28, 4), -1]
    assert first[1].tolist() == [*range(32), 16380, 16381, 16382]
    again = topk.select_keys(scores, positions, topk=32, kpool=4)
    assert torch.equal(first, again)


def test_the_two_zeros_are_equal() -> None:
    scores = torch.tensor([[-0.0, 0.0] * 8, [0.0, -0.0] * 8], device=DEVICE)
    positions = torch.full((2,), 16 * 4 - 1, device=DEVICE)
    found = topk.select_keys(scores, positions, topk=24, kpool=4)
    assert (found[:, :24].cpu() == torch.arange(24)).all()


def test_strided_scores_and_wide_output() -> None:
    dice = torch.Generator().manual_seed(1)
    wide = torch.randn(3, 100, generator=dice).to(DEVICE)
    positions = torch.tensor([200, 255, 90], device=DEVICE)
    found = topk.select_keys(wide[:, :64], positions, topk=64, kpool=4, dtype=torch.int64)
    expected = indexer_reference.select_keys(wide[:, :64].cpu(), positions.cpu(), topk=64, kpool=4)
    assert found.dtype == torch.int64 and torch.equal(found.cpu(), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": torch.zeros(2, 8).double()}, "float32"),
        ({"positions": torch.zeros(3).long()}, "2 rows of scores"),
        ({"topk": 3}, "top-k 3"),
        ({"kpool": 1}, "pools of 1"),
        ({"block_tables": torch.zeros(2, 4).long()}, "row_request"),
        (
            {
                "block_tables": torch.zeros(2, 4).long(),
                "row_request": torch.zeros(2).long(),
                "block_size": 6,
            },
            "block_size 6",
        ),
    ],
)
def test_arguments_of_selection_that_disagree(change: dict[str, Any], message: str) -> None:
    arguments = {"scores": torch.zeros(2, 8), "positions": torch.zeros(2).long()}
    with pytest.raises(ValueError, match=message):
        topk.select_keys(**{**arguments, "topk": 8, "kpool": 4, **change})


class Life:
    """A request's tokens fed step by step through update_pools, some of them taken back."""

    def __init__(self, ring: int, seed: int) -> None:
        self.dice = torch.Generator().manual_seed(seed)
        self.ape = torch.randn(KPOOL, DIM, generator=self.dice)
        self.ring = torch.full((3, ring, 2 * DIM), math.nan, device=DEVICE)
        self.pool = torch.full((64, DIM), math.nan, device=DEVICE)
        self.kept: list[Tensor] = []

    def feed(self, rows: int, accepted: int, padded: int = 0) -> None:
        """One step of `rows` rows, of which the first `accepted` stay."""
        start = len(self.kept)
        entries = torch.randn(rows + padded, 2 * DIM, generator=self.dice)
        position = torch.tensor([*range(start, start + rows), *[0] * padded])
        completes = [(p + 1) % KPOOL == 0 for p in range(start, start + rows)]
        mapping = [
            p // KPOOL if c else -1 for p, c in zip(position.tolist(), completes, strict=False)
        ]
        valid = torch.tensor([True] * rows + [False] * padded)
        tensors = [
            entries,
            self.ring,
            self.pool,
            self.ape,
            position,
            torch.zeros(rows + padded, dtype=torch.int64),
            valid,
            torch.tensor([0, rows + padded]),
            torch.tensor([1]),
            torch.tensor(mapping + [-1] * padded),
        ]
        kpool.update_pools(*[tensor.to(DEVICE) for tensor in tensors])
        self.kept += list(entries[:accepted])

    def check(self) -> None:
        """Every complete pool holds the mean of the tokens that stayed; others were not touched."""
        complete = len(self.kept) // KPOOL
        pool = self.pool.cpu()
        for at in range(complete):
            tokens = torch.stack(self.kept[at * KPOOL : at * KPOOL + KPOOL])
            expected = indexer_reference.compress(tokens, self.ape)
            torch.testing.assert_close(pool[at].double(), expected, atol=1e-5, rtol=1e-5)
        assert pool[complete + 2 :].isnan().all()
        assert self.ring[[0, 2]].isnan().all()


@EXAMPLES
@given(
    prompt=st.lists(st.integers(1, 23), min_size=1, max_size=3),
    steps=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=8),
    padded=st.integers(0, 1),
    seed=st.integers(0, 99),
)
def test_pools_through_chunks_drafts_and_rejections(
    prompt: list[int], steps: list[tuple[int, int]], padded: int, seed: int
) -> None:
    life = Life(8, seed)
    for rows in prompt:
        life.feed(rows, rows)
    for rows, accepted in steps:
        life.feed(rows, min(rows, accepted), padded)
        life.check()
    life.check()


def test_half_precision_pools_round_where_the_model_does() -> None:
    life = Life(8, 0)
    entries = torch.randn(4, 2 * DIM, generator=life.dice).to(DEVICE, torch.float16)
    ring, pool = life.ring.half(), life.pool.half()
    index = torch.arange(4, device=DEVICE)
    kpool.update_pools(
        entries,
        ring,
        pool,
        life.ape.to(DEVICE),
        index,
        torch.zeros_like(index),
        index >= 0,
        torch.tensor([0, 4], device=DEVICE),
        torch.tensor([1], device=DEVICE),
        torch.tensor([-1, -1, -1, 0], device=DEVICE),
    )
    key, gate = entries.chunk(2, -1)
    share = (gate.float() + life.ape.to(DEVICE)).softmax(0).half()
    torch.testing.assert_close(pool[0], (share * key).sum(0), atol=1e-3, rtol=1e-3)
    assert torch.equal(ring[1, :4], entries)


@pytest.mark.parametrize(
    ("position", "wrong", "message"),
    [
        (0, torch.zeros(2, 5), "disagree"),
        (1, torch.zeros(3, 3, 2 * DIM), "ring of 3"),
        (2, torch.zeros(9, DIM).half(), "pool torch.float16"),
    ],
)
def test_arguments_of_pools_that_disagree(position: int, wrong: Tensor, message: str) -> None:
    index = torch.zeros(2, dtype=torch.int64)
    arguments = [torch.zeros(2, 2 * DIM), torch.zeros(3, 8, 2 * DIM), torch.zeros(9, DIM)]
    arguments[position] = wrong
    with pytest.raises(ValueError, match=message):
        kpool.update_pools(
            *arguments, torch.zeros(KPOOL, DIM), index, index, index == 0, index, index, index
        )


@EXAMPLES
@given(
    data=st.data(),
    history=st.integers(2, 40),
    tail=st.integers(0, 7),
    empty=st.sampled_from([-1, 0]),
)
def test_fitting_drops_the_end_of_the_history(
    data: st.DataObject, history: int, tail: int, empty: int
) -> None:
    width = data.draw(st.integers(max(tail, 1), history + tail - 1))
    value = st.one_of(st.just(empty), st.integers(1, 9999))
    columns = data.draw(st.lists(value, min_size=history + tail, max_size=history + tail))
    indices = torch.tensor([columns, columns[::-1]], dtype=torch.int32, device=DEVICE)
    found = fit.fit_keys(indices, width, tail, empty=empty)
    expected = indexer_reference.fit_keys(indices.cpu(), width, tail, empty=empty)
    assert torch.equal(found.cpu(), expected)


def test_fitting_2051_columns_into_2048() -> None:
    full = torch.arange(2051, device=DEVICE).unsqueeze(0)
    assert fit.fit_keys(full, 2048, 3).tolist() == [[*range(2045), 2048, 2049, 2050]]
    assert fit.fit_keys(full, 2051, 3) is full
    for width, tail in ((2, 3), (2052, 3)):
        with pytest.raises(ValueError, match="2051"):
            fit.fit_keys(full, width, tail)
