"""The training forward pass of dsv3_mini, against transformers and against a direct MTP layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dsv3_models import VARIANTS, random_tensors, raw_config, write_folder
from dsv3_reference import MtpReference
from torch import Tensor

from evalsuite.errors import UsageError
from evalsuite.train.dsv3 import architecture
from evalsuite.train.dsv3.config import parse_config
from evalsuite.train.dsv3.forward import Dsv3Forward

TOLERANCE = 1e-4
LENGTH = 40
DEPTH = 5


@pytest.fixture(scope="module", params=VARIANTS)
def raw(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One configuration."""
    return raw_config(request.param)


def forward(raw: dict[str, Any]) -> tuple[Dsv3Forward, dict[str, Tensor]]:
    """The training forward pass over random weights, and the weights."""
    tensors = random_tensors(raw, 5)
    return Dsv3Forward(tensors, parse_config(raw, "test")), tensors


def random_tokens(raw: dict[str, Any], length: int) -> Tensor:
    """Two random streams [2, length]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(2, raw["vocab_size"], (2, length), generator=generator)


def assert_close(found: Tensor, expected: Tensor) -> None:
    """Rows [..., H] agree relative to their norm."""
    errors = (found.double() - expected.double()).norm(dim=-1) / expected.double().norm(dim=-1)
    assert not errors.isnan().any()
    assert float(errors.max()) <= TOLERANCE, f"row {int(errors.argmax())}: {errors.max():.1e}"


def test_hidden_states_and_logits_are_those_of_transformers(
    raw: dict[str, Any], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", minversion="5.17")
    reference, account = transformers.DeepseekV3ForCausalLM.from_pretrained(
        write_folder(tmp_path / "model", raw, 5),
        dtype=torch.float32,
        output_loading_info=True,
        local_files_only=True,
    )
    assert not account["missing_keys"] and not account["mismatched_keys"]
    mtp = f"model.layers.{raw['num_hidden_layers']}."
    assert all(key.startswith(mtp) for key in account["unexpected_keys"])
    model, _ = forward(raw)
    tokens = random_tokens(raw, LENGTH)
    with torch.no_grad():
        hidden = model.trunk(tokens)
        assert_close(hidden, reference.eval().model(input_ids=tokens).last_hidden_state)
        assert_close(model.logits(hidden), reference(input_ids=tokens).logits)


def test_drafts_are_those_of_a_direct_mtp_layer(raw: dict[str, Any]) -> None:
    model, tensors = forward(raw)
    reference = MtpReference(tensors, model.config)
    tokens = random_tokens(raw, LENGTH + DEPTH)
    hidden = torch.randn(2, LENGTH, raw["hidden_size"], generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        every = model.draft(hidden, tokens, DEPTH)
    for stream, position in ((0, 0), (1, 1), (0, 17), (1, LENGTH - 1)):
        expected = reference.chain(hidden[stream], tokens[stream].tolist(), position, DEPTH)
        assert_close(torch.stack([step[stream, position] for step in every]), expected)


def test_drafts_at_chosen_rows_are_those_of_all_rows(raw: dict[str, Any]) -> None:
    model, _ = forward(raw)
    tokens = random_tokens(raw, LENGTH + DEPTH)
    hidden = torch.randn(2, LENGTH, raw["hidden_size"], generator=torch.Generator().manual_seed(3))
    rows = torch.tensor([5, 5, 0, LENGTH - 1])
    with torch.no_grad():
        every = model.draft(hidden, tokens, DEPTH)
        some = model.draft(hidden, tokens, DEPTH, rows)
    assert_close(some[0], every[0])
    for found, expected in zip(some[1:], every[1:], strict=True):
        assert_close(found, expected[:, rows])


def test_a_row_sees_nothing_behind_itself(raw: dict[str, Any]) -> None:
    model, _ = forward(raw)
    tokens = random_tokens(raw, LENGTH)
    changed = tokens.clone()
    changed[:, 20:] = tokens.flip(0)[:, 20:]
    with torch.no_grad():
        one, other = model.trunk(tokens), model.trunk(changed)
    assert_close(one[:, :20], other[:, :20])
    assert float((one[:, 20:] - other[:, 20:]).norm()) > TOLERANCE


def test_every_expert_takes_part_and_shares_sum_up(raw: dict[str, Any]) -> None:
    model, _ = forward(raw)
    with torch.no_grad():
        model.trunk(random_tokens(raw, LENGTH))
    assert model.loads
    for load in model.loads.values():
        assert bool((load > 0).all())
        assert float(load.sum()) == pytest.approx(raw["num_experts_per_tok"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rope_scaling", {**raw_config("trained")["rope_scaling"], "factor": 40}),
        ("rope_interleave", False),
        ("qk_rope_head_dim", 63),
        ("n_group", 3),
        ("topk_group", 5),
        ("num_nextn_predict_layers", 0),
        ("index_topk", 2048),
        ("num_key_value_heads", 1),
    ],
)
def test_a_config_that_cannot_be_trained_is_refused(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"test.*{field}"):
        architecture(raw_config("trained", **{field: value}), "test")
