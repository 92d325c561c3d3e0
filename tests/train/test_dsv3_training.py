"""Training of dsv3_mini: a few steps learn, and the file is what serving engines look for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from dsv3_models import raw_config
from repeating_stream import repeating_stream
from safetensors.torch import load_file
from tokenizers import Tokenizer, models

from evalsuite.paths import PACKAGE
from evalsuite.train.architecture import DRAFT_DEPTH, Losses
from evalsuite.train.dsv3 import FILE, architecture
from evalsuite.train.export import export_folder
from evalsuite.train.loop import Plan, Trainer, train
from evalsuite.train.parameters import initial_parameters

CPU = torch.device("cpu")
LARGEST = 13_000_000
STEPS = 30


@pytest.fixture(scope="module")
def trained() -> tuple[Trainer, list[Losses]]:
    """A few steps of a small model on the CPU."""
    chosen = architecture(raw_config("groups"), "test")
    plan = Plan(
        seconds=1e9,
        max_steps=STEPS,
        batch=4,
        length=64,
        warmup_steps=4,
        rows=16,
        dtype=torch.float32,
    )
    trainer = Trainer(chosen, plan, repeating_stream(chosen.config.vocab_size), CPU)
    taken, plain = [], trainer.step

    def step(sparse: bool) -> Losses:
        assert not sparse
        taken.append(plain(sparse))
        return taken[-1]

    trainer.step = step  # type: ignore[method-assign]
    for _ in train(trainer):
        pass
    return trainer, taken


def test_a_few_steps_lower_every_loss(trained: tuple[Trainer, list[Losses]]) -> None:
    taken = trained[1]
    assert len(taken) == STEPS
    for part in ("token", "draft"):
        first, last = (float(getattr(taken[i], part)) for i in (0, -1))
        assert last < 0.8 * first, f"{part}: {first:.3f} to {last:.3f}"


def test_the_bias_of_the_router_moves_against_the_load(
    trained: tuple[Trainer, list[Losses]],
) -> None:
    biases = [p for n, p in trained[0].params.items() if n.endswith("e_score_correction_bias")]
    # One base layer of three and the MTP layer have experts here.
    assert len(biases) == 2 and all(bool(bias.any()) for bias in biases)
    assert all(not bias.requires_grad for bias in biases)


def test_a_gradient_reaches_every_trained_parameter() -> None:
    chosen = architecture(raw_config("groups"), "test")
    params = initial_parameters(chosen.specs, 3, CPU)
    # Rows enough that the router chooses every expert somewhere; half of them sometimes do not.
    tokens = torch.randint(2, chosen.config.vocab_size, (8, 64 + DRAFT_DEPTH + 1))
    rows = torch.arange(0, 64, 4)
    losses = chosen.build(params, False).losses(tokens, torch.ones(tokens.shape), rows, False)
    losses.total.backward()
    idle = [
        n for n, p in params.items() if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    assert idle == []


def test_the_folder_holds_what_serving_engines_look_for(
    trained: tuple[Trainer, list[Losses]], tmp_path: Path
) -> None:
    trainer, raw = trained[0], raw_config("groups")
    export_folder(trainer.params, trainer.architecture, raw, Tokenizer(models.BPE()), tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    mtp = f"model.layers.{raw['num_hidden_layers']}."
    parts = ["enorm", "hnorm", "eh_proj", "shared_head.norm", "shared_head.head", "embed_tokens"]
    assert {f"{mtp}{part}.weight" for part in parts} <= set(stored)
    assert torch.equal(stored[f"{mtp}shared_head.head.weight"], stored["lm_head.weight"])
    assert torch.equal(stored[f"{mtp}embed_tokens.weight"], stored["model.embed_tokens.weight"])
    for name, tensor in stored.items():
        kept = name.endswith("e_score_correction_bias")
        assert tensor.dtype == (torch.float32 if kept else torch.bfloat16), name
        if name in trainer.params:
            assert torch.equal(tensor, trainer.params[name].detach().to(tensor.dtype))
    config: dict[str, Any] = json.loads((tmp_path / "config.json").read_text())
    assert config == raw


def test_the_trained_sizes_stay_small_and_true() -> None:
    raw = json.loads(FILE.read_text())
    chosen = architecture(raw, str(FILE))
    shapes = {spec.name: spec for spec in chosen.specs}
    sizes = [torch.Size(spec.shape).numel() * (4 if spec.float32 else 2) for spec in chosen.specs]
    sizes += [2 * torch.Size(shapes[name].shape).numel() for name in chosen.copies.values()]
    assert sum(sizes) < LARGEST
    assert (raw["kv_lora_rank"], raw["qk_rope_head_dim"]) == (512, 64)


def test_the_checkpoint_is_of_the_architecture() -> None:
    folder = PACKAGE / "models" / "dsv3_mini"
    raw = json.loads((folder / "config.json").read_text())
    assert raw == json.loads(FILE.read_text())
    chosen = architecture(raw, str(FILE))
    expected = {spec.name: torch.Size(spec.shape) for spec in chosen.specs}
    expected |= {name: expected[original] for name, original in chosen.copies.items()}
    stored = load_file(folder / "model.safetensors")
    assert {name: tensor.shape for name, tensor in stored.items()} == expected
    assert (folder / "model.safetensors").stat().st_size < LARGEST
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == raw["vocab_size"]
