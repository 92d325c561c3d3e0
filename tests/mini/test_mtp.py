"""The MTP layer and its recursion against the slow direct form."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from mtp_reference import MtpReference
from row_driver import RowDriver
from small_models import folder_of, load_model
from torch import Tensor

from evalsuite.mini.checkpoint import load_checkpoint
from evalsuite.mini.metadata import DecodeInputs
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.mtp import mtp_layer
from evalsuite.mini.speculate import DraftState, first_draft, next_draft

TOLERANCE = 1e-4
SEEDS = {"trained": 1, "hybrid": 1, "sparse-first": 1}


class Drafter(NamedTuple):
    """The engine's model, the reference, and two token streams."""

    model: Model
    reference: MtpReference
    streams: list[list[int]]


@pytest.fixture(scope="module", params=SEEDS)
def drafter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drafter:
    """A model with an MTP layer and its reference."""
    folder = folder_of(request.param, tmp_path_factory.mktemp("models"))
    model = load_model(folder)
    reference = MtpReference(load_checkpoint(folder).tensors, model.config)
    generator = torch.Generator().manual_seed(SEEDS[request.param])
    size = (2, 2 * model.config.index_topk)
    streams = torch.randint(2, model.config.vocab_size, size, generator=generator).tolist()
    return Drafter(model, reference, streams)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Rows [T, H] agree relative to their norm."""
    errors = (found.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert not errors.isnan().any()
    assert float(errors.max()) <= TOLERANCE, f"row {int(errors.argmax())}: {errors.max():.1e}"


def run_first_step(driver: RowDriver, hidden: list[Tensor], next_tokens: list[int]) -> Tensor:
    """MTP step 0 over all rows of the driver's last step, [T, H]."""
    batch, cache = driver.batch, driver.caches.mtp
    assert batch is not None and cache is not None
    with torch.no_grad():
        out, _ = mtp_layer(
            driver.model, torch.cat(hidden), torch.tensor(next_tokens), cache, 16, batch.meta
        )
    return out


def test_first_step_over_chunks_of_a_ragged_batch(drafter: Drafter) -> None:
    topk = drafter.model.config.index_topk
    lengths = [topk + 11, topk // 2 + 2]
    prompts = [stream[: n + 1] for stream, n in zip(drafter.streams, lengths, strict=True)]
    driver = RowDriver(drafter.model, prompts)
    hidden: list[list[Tensor]] = [[], []]
    drafted: list[list[Tensor]] = [[], []]
    plan = [{0: topk - 3, 1: 9}, {0: 5}, {1: lengths[1] - 9, 0: lengths[0] - topk - 2}]
    for step in plan:
        starts = {i: driver.sequences[i].computed for i in step}
        parts = driver.step(step)
        following = [t for i, n in step.items() for t in prompts[i][starts[i] + 1 :][:n]]
        outs = run_first_step(driver, parts, following).split(list(step.values()))
        for request, part, out in zip(step, parts, outs, strict=True):
            hidden[request].append(part)
            drafted[request].append(out)
    for request, prompt in enumerate(prompts):
        expected = drafter.reference.first_step(prompt, torch.cat(hidden[request]))
        assert_close(torch.cat(drafted[request]), expected)


def draft_inputs(driver: RowDriver) -> DecodeInputs:
    """Tables of the driver's only request for its draft steps."""
    assert driver.batch is not None
    meta, one = driver.batch.meta, torch.ones(1, dtype=torch.int64)
    return DecodeInputs(
        one.view(1, 1), one, one, meta.state_slots, one - 1, one, one, meta.block_tables
    )


def draft(
    driver: RowDriver, hidden: Tensor, next_tokens: list[int], last: int, k: int, share: bool
) -> list[DraftState]:
    """k draft states of the driver's only request behind row `last` of its last step."""
    model, cache, batch = driver.model, driver.caches.mtp, driver.batch
    assert cache is not None and batch is not None
    with torch.no_grad():
        states = [
            first_draft(
                *(model, hidden, torch.tensor(next_tokens), cache, 16, batch.meta),
                torch.tensor([last]),
                draft_inputs(driver),
            )
        ]
        for _ in range(k - 1):
            states.append(next_draft(model, states[-1], cache, 16, share))
    return states


@pytest.mark.parametrize("share", [True, False], ids=["shared", "own-index"])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_drafts_over_rounds_with_rejections(drafter: Drafter, k: int, share: bool) -> None:
    stream, noise = drafter.streams
    config = drafter.model.config
    driver = RowDriver(drafter.model, [list(stream)], k=k)
    sequence, kept = driver.sequences[0], []
    start = config.index_topk - config.index_kpool - 2
    rows, accepted, width = driver.step({0: start})[0], start - 1, start
    # Accepted counts that end a pool, stop short of one and run over one.
    for turn, following in enumerate([k, 0, k // 2, 1, k]):
        begin = sequence.computed - width
        kept.append(rows[: accepted + 1])
        after = stream[begin + 1 : begin + accepted + 2] + noise[: width - accepted - 1]
        states = draft(driver, rows, after, accepted, k, share)
        known = begin + accepted + 1
        expected, tokens = drafter.reference.drafts(stream[: known + 1], torch.cat(kept), k, share)
        assert_close(torch.cat([state.hidden for state in states]), expected)
        assert [int(state.token) for state in states] == tokens, f"turn {turn}"
        if width != start:
            driver.accept(0, width, accepted)
        accepted, width = min(following, k), k + 1
        right = stream[: known + accepted + 1]
        sequence.tokens = right + noise[len(right) : len(right) + k]
        rows = driver.step({}, {0: width})[0]


def test_sharing_makes_a_difference(drafter: Drafter) -> None:
    # Otherwise the tests above could not tell the two ways apart.
    hidden = RowDriver(drafter.model, drafter.streams[:1]).step({0: 40})[0]
    shared, own = (
        drafter.reference.drafts(drafter.streams[0][:41], hidden, 3, share)[0]
        for share in (True, False)
    )
    assert torch.equal(shared[0], own[0])
    assert float((shared[1:] - own[1:]).norm() / own[1:].norm()) > 100 * TOLERANCE
