"""Training: its forward pass is the inference path's, and a few steps learn and round-trip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from repeating_stream import repeating_stream
from row_driver import RowDriver
from safetensors import safe_open
from small_models import byte_tokenizer, folder_of, load_model, raw_config
from torch import Tensor

from evalsuite.errors import UsageError
from evalsuite.mini.checkpoint import EMBEDDED, load_checkpoint
from evalsuite.mini.config import parse_config
from evalsuite.mini.metadata import DecodeInputs
from evalsuite.mini.model.decoder import logits
from evalsuite.mini.model.mtp import mtp_layer
from evalsuite.mini.names import tensor_specs
from evalsuite.mini.speculate import first_draft, next_draft
from evalsuite.train.data import encode_problem, prompt_text, shard_problems
from evalsuite.train.export import export_folder
from evalsuite.train.forward import TrainForward
from evalsuite.train.glm53 import FILE, architecture
from evalsuite.train.loop import Plan, Trainer, train
from evalsuite.train.loss import losses
from evalsuite.train.parameters import initial_parameters
from gsm_mini import held_out_questions

TOLERANCE = 1e-4
CPU = torch.device("cpu")
NAMES = ["trained", "hybrid", "sparse-first"]
DEPTH = 5


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Rows [T, H] agree relative to their norm."""
    errors = (found - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert not errors.isnan().any()
    assert float(errors.max()) <= TOLERANCE, f"row {int(errors.argmax())}: {errors.max():.1e}"


@pytest.fixture(scope="module", params=NAMES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with an MTP layer."""
    return folder_of(request.param, tmp_path_factory.mktemp("models"))


def streams(folder: Path, length: int) -> list[list[int]]:
    """Two random token streams of this length."""
    vocab = load_checkpoint(folder).config.vocab_size
    generator = torch.Generator().manual_seed(2)
    return torch.randint(2, vocab, (2, length), generator=generator).tolist()


def training_model(folder: Path) -> TrainForward:
    """The training forward pass on a folder's weights, float32."""
    checkpoint = load_checkpoint(folder)
    tensors = {name: tensor.float() for name, tensor in checkpoint.tensors.items()}
    return TrainForward(tensors, checkpoint.config)


def test_trunk_equals_inference_with_and_without_selection(folder: Path) -> None:
    model, training = load_model(folder), training_model(folder)
    # A multiple of the training's chunk of 64 rows, with selection at work in half of it.
    length = max(128, 2 * model.config.index_topk)
    tokens = streams(folder, length)
    found = RowDriver(model, tokens).step({0: length, 1: length})
    with torch.no_grad():
        sparse, terms = training.trunk(torch.tensor(tokens), sparse=True)
        dense, _ = training.trunk(torch.tensor(tokens), sparse=False)
    assert len(terms) == model.config.layer_types.count("deepseek_sparse_attention")
    for ours, expected in zip(found, sparse, strict=True):
        assert_close(ours, expected)
    assert_close(training.logits(sparse[0]), logits(model, found[0]))
    # Dense rows see all keys, so rows behind index_topk must differ, or selection did nothing.
    assert float((dense[0] - sparse[0])[model.config.index_topk + 8 :].norm()) > TOLERANCE


def test_drafts_equal_inference(folder: Path) -> None:
    model, training = load_model(folder), training_model(folder)
    length = max(128, 2 * model.config.index_topk)
    tokens = streams(folder, length + DEPTH)
    driver = RowDriver(model, [row[:length] for row in tokens[:1]])
    hidden = driver.step({0: length})[0]
    with torch.no_grad():
        expected, _ = training.draft(hidden.unsqueeze(0), torch.tensor(tokens[:1]), DEPTH, True)
    batch, cache = driver.batch, driver.caches.mtp
    assert batch is not None and cache is not None
    with torch.no_grad():
        following = torch.tensor(tokens[0][1 : length + 1])
        first, _ = mtp_layer(model, hidden, following, cache, 16, batch.meta)
        assert_close(first, expected[0][0])
        one, rows = torch.ones(1, dtype=torch.int64), torch.tensor([length - 1])
        inputs = DecodeInputs(
            one.view(1, 1),
            one,
            one,
            batch.meta.state_slots,
            one - 1,
            one,
            one,
            driver_table(driver),
        )
        state = first_draft(model, hidden, following, cache, 16, batch.meta, rows, inputs)
        for step in range(1, DEPTH):
            # Teacher forcing, as in training; the last row's recursion is the one inference does.
            state = state._replace(token=torch.tensor([tokens[0][length + step]]))
            state = next_draft(model, state, cache, 16, share_slots=True)
            assert_close(state.hidden, expected[step][0, -1:])


def driver_table(driver: RowDriver) -> Tensor:
    """Block table [1, n] of the driver's first request."""
    return torch.tensor([driver.sequences[0].blocks])


def test_a_gradient_reaches_every_trained_parameter() -> None:
    config = parse_config(raw_config("hybrid"), "test")
    params = initial_parameters(tensor_specs(config), 3, CPU)
    model = TrainForward(params, config)
    tokens = torch.randint(2, config.vocab_size, (2, 128 + DEPTH + 1))
    rows = torch.arange(64, 128)
    result = losses(model, tokens, torch.ones(tokens.shape), rows, sparse=True)
    result.total.backward()
    without = [n for n, p in params.items() if p.requires_grad and p.grad is None]
    assert without == []
    idle = [n for n, p in params.items() if p.grad is not None and not p.grad.any()]
    # With one expert load at the start some experts may get no row at all.
    assert [name for name in idle if ".experts." not in name] == []


@pytest.fixture(scope="module")
def trained_run() -> tuple[Trainer, list[Any], dict[str, Any]]:
    """A few steps of a very small model on the CPU, dense first and sparse after."""
    torch.manual_seed(0)
    raw = raw_config("hybrid", vocab_size=258, index_topk=16, dtype="bfloat16")
    glm53 = architecture(raw, "test")
    plan = Plan(
        seconds=1e9,
        max_steps=24,
        batch=4,
        length=64,
        warmup_steps=4,
        rows=16,
        dtype=torch.float32,
    )
    trainer = Trainer(glm53, plan, repeating_stream(raw["vocab_size"]), CPU)
    taken, plain = [], trainer.step

    def step(sparse: bool) -> Any:
        result = plain(sparse)
        taken.append((sparse, result))
        return result

    trainer.step = step  # type: ignore[method-assign]
    for _ in train(trainer):
        pass
    return trainer, taken, raw


def test_a_few_steps_lower_every_loss(trained_run: tuple[Trainer, list[Any], Any]) -> None:
    _, taken, _ = trained_run
    assert len(taken) == 24
    assert {sparse for sparse, _ in taken} == {True, False}
    for part in ("token", "draft"):
        first, last = (float(getattr(taken[i][1], part)) for i in (0, -1))
        assert last < 0.8 * first, f"{part}: {first:.3f} to {last:.3f}"


def test_the_bias_of_the_router_moves_against_the_load(
    trained_run: tuple[Trainer, list[Any], Any],
) -> None:
    trainer, _, _ = trained_run
    biases = [p for n, p in trainer.params.items() if n.endswith("e_score_correction_bias")]
    assert biases and all(bool(bias.any()) for bias in biases)
    assert all(not bias.requires_grad for bias in biases)


def test_export_round_trips(
    trained_run: tuple[Trainer, list[Any], dict[str, Any]], tmp_path: Path
) -> None:
    trainer, _, raw = trained_run
    export_folder(trainer.params, trainer.architecture, raw, byte_tokenizer(), tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.config == trainer.architecture.config
    for spec in trainer.architecture.specs:
        stored, trained = checkpoint.tensors[spec.name], trainer.params[spec.name].detach()
        assert stored.dtype == (torch.float32 if spec.float32 else torch.bfloat16)
        assert torch.equal(stored, trained.to(stored.dtype))
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    tokens = [streams(tmp_path, 64)[0]]
    found = RowDriver(load_model(tmp_path), tokens).step({0: 64})[0]
    with torch.no_grad():
        expected, _ = training_model(tmp_path).trunk(torch.tensor(tokens), sparse=True)
    assert_close(found, expected[0])


def test_training_problems_are_none_of_the_frozen_ones() -> None:
    held_out, seen = held_out_questions(), []
    for problem in shard_problems(0):
        seen.append(problem)
        if len(seen) == 300:
            break
    assert not {problem.question for problem in seen} & held_out
    prompt, answer = encode_problem(byte_tokenizer(), seen[0])
    text = byte_tokenizer().decode(prompt + answer)
    assert text == f"{prompt_text(seen[0])} {seen[0].answer}\n\n"


def test_the_architecture_is_the_one_of_the_checkpoint() -> None:
    assert json.loads(FILE.read_text()) == json.loads((EMBEDDED / "config.json").read_text())


def test_a_config_that_cannot_be_trained_is_refused() -> None:
    with pytest.raises(UsageError, match="qk_rope_head_dim"):
        parse_config(raw_config("hybrid", qk_rope_head_dim=64), "architecture.json")
