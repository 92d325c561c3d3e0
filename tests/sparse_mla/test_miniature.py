"""The miniature's engine on the kernels of sparse_mla: the same answers, and the route proven."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parents[1] / "mini"))

from tiny import TINY, prompt, request, tiny_model, tiny_session

from evalsuite.engines import mini as mini_engine
from evalsuite.errors import UsageError
from evalsuite.mini.caches import ZERO_SLOT
from evalsuite.mini.model import indexer, kernels
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.kernels import check_supported, triton_attention
from evalsuite.mini.model.sparse_ops import IN_PYTORCH, SparseOps, gather_attention
from sparse_mla.forcing import forced
from sparse_mla.geometry import UnsupportedGeometry

CPU = torch.device("cpu")


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of a CPU's tensors run in the interpreter."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def on_kernels(model: Model, ops: SparseOps = kernels.ATTENTION) -> Model:
    """The same model with its attention on the kernels, or all that `ops` say."""
    return replace(model, ops=ops, route=kernels.ROUTE)


def answers(model: Model, **options: object) -> tuple[list[list[int]], dict[str, set[str]], int]:
    """Tokens of three requests, the kernels of each row kind, and the steps counted."""
    session = tiny_session(model, **options)
    asked = [request(str(n), prompt(9 + 7 * n, n), 12) for n in range(3)]
    tokens = {one.request.request_id: one.tokens for one in session.generate(asked)}
    return (
        [tokens[str(n)] for n in range(3)],
        session.counters.routes,
        sum(session.counters.steps_by_kind.values()),
    )


def step(rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, float]:
    """A call of the miniature's attention; slot 0 holds zeros and stands for no key."""
    dice = torch.Generator().manual_seed(rows)
    latent = torch.randn(64, TINY.kv_lora_rank, generator=dice)
    latent[ZERO_SLOT] = 0
    slots = torch.randint(0, 64, (rows, columns), generator=dice)
    slots[0] = ZERO_SLOT
    # As the model hands it over: heads first in memory.
    query = torch.randn(2, rows, TINY.kv_lora_rank, generator=dice).transpose(0, 1)
    return query, latent, slots, 0.25


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("rows", [1, 6])
def test_attention_agrees_with_gathering(rows: int) -> None:
    arguments = step(rows, 19)
    with kernels.rows(frozenset({"decode"})):
        found = triton_attention(*arguments)
    torch.testing.assert_close(found, gather_attention(*arguments), atol=1e-5, rtol=1e-5)
    assert (found[0] == 0).all()
    with pytest.raises(LookupError):
        triton_attention(*arguments)
    with kernels.rows(frozenset()), pytest.raises(ValueError, match="without rows"):
        triton_attention(*arguments)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("k", [0, 2])
def test_answers_are_the_same_and_every_row_kind_names_its_kernel(k: int) -> None:
    model = tiny_model(3)
    expected, plain_routes, plain_steps = answers(model, k=k)
    found, routes, steps = answers(on_kernels(model), k=k)
    assert found == expected
    assert steps == plain_steps
    assert routes.keys() == plain_routes.keys()
    assert set(routes) >= ({"prefill", "verify:3"} if k else {"prefill", "decode"})
    assert all(names == {"triton_latent"} for names in routes.values())
    assert all(names == {"torch_gather"} for names in plain_routes.values())


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("k", [0, 2])
def test_answers_are_the_same_with_the_indexer_on_kernels(
    monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    model = tiny_model(3)
    # Chunks of prompts beside verification rows, of which a random drafter's seldom hold.
    crowded = {"k": k, "max_num_batched_tokens": 18}
    expected, *_ = answers(model, **crowded)
    for name in ("pool_scores", "compress"):
        monkeypatch.delattr(indexer, name)
    found, *_ = answers(on_kernels(model, kernels.ALL), **crowded)
    assert found == expected


@pytest.mark.usefixtures("interpreted")
def test_verification_rows_on_a_kernel_for_wider_rows_show_in_route_and_answers() -> None:
    model = tiny_model(3)
    right, _, _ = answers(on_kernels(model), k=2)
    with forced("triton_rope", {"verify:2", "verify:3"}, rope_dim=64):
        wrong, routes, _ = answers(on_kernels(model), k=2)
    assert routes["verify:3"] == {"triton_rope"}
    assert routes["prefill"] >= {"triton_latent"}
    assert wrong != right


def test_routes_of_a_captured_step_come_from_its_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    model = tiny_model(3)
    expected, _, _ = answers(model, k=2)
    found, routes, _ = answers(on_kernels(model), k=2, graph=True, graph_batches=(4,))
    assert found == expected
    assert routes["verify:3"] == {"torch_gather"} == routes["prefill"]


def test_a_model_that_no_kernel_can_run_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "architecture_of", lambda device: "sm_75")
    with pytest.raises(UsageError, match=r"engine\.options\.kernels") as caught:
        check_supported(TINY, torch.bfloat16, CPU)
    assert "triton_latent: architecture sm_75" in str(caught.value)
    with kernels.rows(frozenset({"decode"})), pytest.raises(UnsupportedGeometry, match="sm_75"):
        triton_attention(*step(1, 19))
    monkeypatch.setattr(kernels, "architecture_of", lambda device: "sm_90")
    check_supported(replace(TINY, kv_lora_rank=512), torch.bfloat16, CPU)


@pytest.mark.parametrize(
    ("choice", "dtype", "device", "expected"),
    [
        ("auto", "bfloat16", "cuda", True),
        ("torch", "bfloat16", "cuda", False),
        ("auto", "float32", "cuda", False),
        ("auto", "bfloat16", "cpu", False),
    ],
)
def test_when_the_engine_uses_kernels(choice: str, dtype: str, device: str, expected: bool) -> None:
    assert mini_engine._use_kernels(choice, dtype, torch.device(device)) is expected


@pytest.mark.parametrize(
    ("with_kernels", "index", "expected"),
    [
        (False, "torch", IN_PYTORCH),
        (True, "torch", kernels.ATTENTION),
        (True, "kernels", kernels.ALL),
    ],
)
def test_what_the_sparse_layers_compute_with(
    with_kernels: bool, index: str, expected: SparseOps
) -> None:
    assert mini_engine._sparse_ops(with_kernels, index) is expected


@pytest.mark.parametrize(("index", "told"), [("kernels", "bfloat16 on a GPU"), (1, "1: expected")])
def test_an_indexer_that_cannot_be_had_is_refused(index: object, told: str) -> None:
    with pytest.raises(UsageError, match=rf"engine\.options\.indexer.*{told}"):
        mini_engine.open_engine(
            model=None, dtype=None, device="cpu", concurrency=None, options={"indexer": index}
        )


def test_an_unknown_choice_of_kernels_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"engine\.options\.kernels.*'cuda': expected auto or torch"
    ):
        mini_engine.open_engine(
            model=None, dtype=None, device="cpu", concurrency=None, options={"kernels": "cuda"}
        )
