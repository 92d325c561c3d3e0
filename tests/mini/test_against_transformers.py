"""The model against transformers' own implementation of the architecture, `glm5_next`.

Prompts are beginnings of four random streams for each model, with seeds for which no choice of
pools or experts hangs on rounding (a test checks that): a flipped choice is no error, and yet far
above any tolerance.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hf_reference import HeadedModel, load_reference, reference_hidden
from row_driver import RowDriver
from small_models import folder_of, load_model
from torch import Tensor

from evalsuite.mini.model import indexer, moe
from evalsuite.mini.model.decoder import Model, logits

TOLERANCE = 1e-4
# Float32 rounding of a score is below 1e-6 of the largest one.
ROUNDING = 2e-6
SEEDS = {"trained": 5, "hybrid": 0, "sparse-first": 0, "pairs": 0}
STREAMS = 4


class Pair(NamedTuple):
    """Our model and the reference on the same folder."""

    model: Model
    reference: HeadedModel
    account: dict[str, Any]
    folder: Path
    streams: list[list[int]]


@pytest.fixture(scope="module", params=SEEDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model and its reference, float32."""
    folder = folder_of(request.param, tmp_path_factory.mktemp("models"))
    reference, account = load_reference(folder)
    model = load_model(folder)
    return Pair(model, reference, account, folder, random_streams(model, SEEDS[request.param]))


def random_streams(model: Model, seed: int) -> list[list[int]]:
    """Token streams three times as long as index_topk, special tokens left out."""
    generator = torch.Generator().manual_seed(seed)
    size = (STREAMS, 3 * model.config.index_topk)
    return torch.randint(2, model.config.vocab_size, size, generator=generator).tolist()


def row_errors(found: Tensor, expected: Tensor) -> Tensor:
    """Relative error of every row, in the 2-norm, [T]."""
    difference = (found.float() - expected.float()).norm(dim=-1)
    return difference / expected.float().norm(dim=-1)


def assert_agree(pair: Pair, found: Tensor, expected: Tensor) -> None:
    """Hidden states [T, H] and the logits made of them agree with the reference's."""
    assert found.shape == expected.shape
    with torch.no_grad():
        scores, expected_scores = logits(pair.model, found), pair.reference.lm_head(expected)
    for name, ours, theirs in (("hidden", found, expected), ("logits", scores, expected_scores)):
        errors = row_errors(ours, theirs)
        worst = int(errors.argmax())
        assert not errors.isnan().any(), f"{name}: NaN in rows {errors.isnan().nonzero().tolist()}"
        assert errors[worst] <= TOLERANCE, f"{name}: row {worst} is off by {errors[worst]:.1e}"


def lengths_around_topk(model: Model) -> list[int]:
    """Context lengths on both sides of index_topk, and at it."""
    topk = model.config.index_topk
    return [1, topk // 3, topk - 1, topk, topk + 1, 2 * topk + 3, 3 * topk]


def test_transformers_loads_the_published_names(pair: Pair) -> None:
    account, layers = pair.account, pair.model.config.num_hidden_layers
    assert not account["missing_keys"] and not account["mismatched_keys"]
    # The MTP layer is the only part that transformers does not know.
    assert all(key.startswith(f"model.layers.{layers}.") for key in account["unexpected_keys"])
    assert pair.reference.config.index_kpool == pair.model.config.index_kpool


def test_whole_prefill_of_a_ragged_batch(pair: Pair) -> None:
    lengths = lengths_around_topk(pair.model)
    prompts = [pair.streams[i % STREAMS][:n] for i, n in enumerate(lengths)]
    found = RowDriver(pair.model, prompts).step({i: len(p) for i, p in enumerate(prompts)})
    for prompt, hidden in zip(prompts, found, strict=True):
        assert_agree(pair, hidden, reference_hidden(pair.reference, prompt, [len(prompt)]))


def test_decode_step_by_step_across_topk(pair: Pair) -> None:
    topk, kpool = pair.model.config.index_topk, pair.model.config.index_kpool
    prompt = pair.streams[0][: topk + 2 * kpool + 1]
    first = topk - kpool - 1
    chunks = [first] + [1] * (len(prompt) - first)
    driver = RowDriver(pair.model, [prompt])
    found = driver.step({0: first})
    for _ in chunks[1:]:
        found += driver.step({}, {0: 1})
    assert_agree(pair, torch.cat(found), reference_hidden(pair.reference, prompt, chunks))


def test_decode_from_the_first_token(pair: Pair) -> None:
    prompt = pair.streams[1][: 3 * pair.model.config.index_kpool + 2]
    driver = RowDriver(pair.model, [prompt])
    found = [driver.step({}, {0: 1})[0] for _ in prompt]
    assert_agree(
        pair, torch.cat(found), reference_hidden(pair.reference, prompt, [1] * len(prompt))
    )


def test_chunked_prefill(pair: Pair) -> None:
    # Chunks behind the first start at any position of a pool; transformers gets the same ones.
    prompt = pair.streams[2][: 2 * pair.model.config.index_topk + 7]
    sizes = [16, 1, 30, 17, 16]
    chunks = [*sizes, len(prompt) - sum(sizes)] if len(prompt) > sum(sizes) else [9, 1, 20]
    chunks[-1] += len(prompt) - sum(chunks)
    driver = RowDriver(pair.model, [prompt])
    found = torch.cat([driver.step({0: size})[0] for size in chunks])
    assert_agree(pair, found, reference_hidden(pair.reference, prompt, chunks))


def test_decode_rows_and_prefill_chunks_in_one_step(pair: Pair) -> None:
    topk = pair.model.config.index_topk
    lengths = [topk + 9, topk // 2 + 5, 2 * topk + 6, 19]
    prompts = [stream[:n] for stream, n in zip(pair.streams, lengths, strict=True)]
    driver = RowDriver(pair.model, prompts, k=2)
    found: dict[int, list[Tensor]] = {i: [] for i in range(4)}

    def step(prefill: dict[int, int], decode: dict[int, int] | None = None) -> None:
        parts = driver.step(prefill, decode)
        for request, part in zip([*(decode or {}), *prefill], parts, strict=True):
            found[request].append(part)

    step({0: lengths[0] - 5, 1: lengths[1] - 4})
    step({2: topk}, {1: 1, 0: 1})
    step({2: 5, 3: 3}, {0: 1, 1: 1})
    step({2: 3, 3: 16}, {1: 2, 0: 3})
    step({2: topk - 2})
    for request, prompt in enumerate(prompts):
        expected = reference_hidden(pair.reference, prompt, [len(prompt)])
        assert_agree(pair, torch.cat(found[request]), expected)


@pytest.mark.parametrize("width", [2, 3, 4, 5, 6])
def test_verification_goes_on_from_the_last_accepted_row(pair: Pair, width: int) -> None:
    # Wrong drafts behind the accepted ones must leave no trace in any cache or state.
    topk = pair.model.config.index_topk
    prompt, wrong = pair.streams[3], pair.streams[2]
    driver = RowDriver(pair.model, [prompt], k=width - 1)
    found = [driver.step({0: topk - 10})[0]]
    sequence = driver.sequences[0]
    turn = 0
    while sequence.computed + width <= topk + 20 and turn < 4 * width:
        accepted, start, turn = turn % width, sequence.computed, turn + 1
        right = prompt[start : start + accepted + 1]
        sequence.tokens = prompt[: start + accepted + 1] + wrong[start + accepted + 1 :]
        hidden = driver.step({}, {0: width})[0]
        driver.accept(0, width, accepted)
        found.append(hidden[: len(right)])
    rows = torch.cat(found)
    assert_agree(pair, rows, reference_hidden(pair.reference, prompt, [len(prompt)])[: len(rows)])


def gap_below(scores: Tensor, count: int) -> Tensor:
    """Distance of the last chosen score from the first one left out, relative to the largest."""
    ordered = scores.sort(-1, descending=True).values
    return (ordered[..., count - 1] - ordered[..., count]) / ordered.abs().amax(-1)


def test_no_choice_of_these_tests_hangs_on_rounding(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, pools, experts = pair.model.config, [], []
    count = config.index_topk // config.index_kpool
    plain_scores, plain_route = indexer.pool_scores, moe.route

    def watched_scores(*args: Any) -> Tensor:
        scores = plain_scores(*args)
        for position in range(config.index_topk + config.index_kpool - 1, scores.shape[1]):
            complete = (position + 1) // config.index_kpool
            pools.append(gap_below(scores[:, position, :complete], count).min())
        return scores

    def watched_route(x: Tensor, weights: moe.MoeWeights, config: Any) -> Tensor:
        scores = F.linear(x, weights.router).sigmoid() + weights.bias
        experts.append(gap_below(scores, config.num_experts_per_tok).min())
        return plain_route(x, weights, config)

    monkeypatch.setattr(indexer, "pool_scores", watched_scores)
    monkeypatch.setattr(moe, "route", watched_route)
    RowDriver(pair.model, pair.streams).step({i: len(s) for i, s in enumerate(pair.streams)})
    assert len(pools) >= config.index_topk and experts
    assert float(min(pools)) > ROUNDING
    assert float(min(experts)) > ROUNDING


def test_bfloat16_is_as_near_to_float32_as_transformers_own(pair: Pair) -> None:
    theirs_model, _ = load_reference(pair.folder, torch.bfloat16)
    length = 2 * pair.model.config.index_topk
    prompts = [stream[:length] for stream in pair.streams]
    driver = RowDriver(load_model(pair.folder, torch.bfloat16), prompts)
    parts = [driver.step(dict.fromkeys(range(STREAMS), length - 4))]
    parts += [driver.step({}, dict.fromkeys(range(STREAMS), 1)) for _ in range(4)]
    ours, theirs = [], []
    for prompt, rows in zip(prompts, zip(*parts, strict=True), strict=True):
        exact = reference_hidden(pair.reference, prompt, [length])
        ours.append(row_errors(torch.cat(rows), exact))
        theirs.append(row_errors(reference_hidden(theirs_model, prompt, [length]), exact))
    # The median is rounding alone; the tail is where rounding turned a choice.
    for share, factor in ((0.5, 1.25), (0.95, 2.0)):
        ours_at, theirs_at = torch.cat(ours).quantile(share), torch.cat(theirs).quantile(share)
        print(f"share {share}: {ours_at:.4f}, transformers {theirs_at:.4f}")
        assert ours_at <= factor * theirs_at
