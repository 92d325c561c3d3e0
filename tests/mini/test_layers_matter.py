"""A fault in a layer can only show where answers depend on that layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from evalsuite.engines.mini import open_engine
from evalsuite.harness import HarnessTask, select
from evalsuite.mini.engine import Session
from evalsuite.mini.model import decoder
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.sparse_ops import SparseOps
from evalsuite.mini.options import SessionOptions
from evalsuite.mini.sequence import GenerationRequest
from evalsuite.scoring import read_gold, read_number

ITEMS = 12


def right_answers(model: Model, task: HarnessTask) -> int:
    """How many of a dozen problems the model answers rightly."""
    engine = open_engine(model=None, dtype="float32", device="cpu", concurrency=None, options={})
    tokenizer = engine.checkpoint.tokenizer
    session = Session(model, tokenizer, SessionOptions(max_model_len=768))
    chosen = {entry.item.item_id: entry for entry in select(task.items, ITEMS)}
    asked = [
        GenerationRequest(name, tuple(tokenizer.encode(entry.prompt).ids), 192, (b"Question:",))
        for name, entry in chosen.items()
    ]
    right = 0
    for done in session.generate(asked):
        gold = chosen[done.request.request_id].item.gold
        read = read_number(done.output.decode(errors="replace"))
        assert gold is not None
        right += read is not None and read.equals(read_gold(gold))
    return right


def no_attention(query: Tensor, latent: Tensor, slots: Tensor, scale: float) -> Tensor:
    """Attention that sees nothing."""
    return torch.zeros_like(query)


@pytest.fixture(scope="module")
def model() -> Model:
    """The embedded checkpoint in float32."""
    return open_engine(
        model=None, dtype="float32", device="cpu", concurrency=None, options={}
    ).model()


def test_answers_need_the_recurrent_layers(
    model: Model, gsm_mini_task: HarnessTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right_answers(model, gsm_mini_task) >= ITEMS - 3
    monkeypatch.setattr(decoder, "linear_attention", lambda x, *rest: torch.zeros_like(x))
    assert right_answers(model, gsm_mini_task) <= ITEMS // 4


def test_answers_need_sparse_attention(model: Model, gsm_mini_task: HarnessTask) -> None:
    blind = Model(model.config, model.weights, ops=SparseOps(no_attention))
    assert right_answers(blind, gsm_mini_task) <= ITEMS // 4
