"""The chunked delta rule against the recurrence in float64, also where it is numerically hard."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from evalsuite.mini.model import delta_rule
from evalsuite.mini.model.delta_rule import DeltaInputs

SEQUENCES, DIM = 3, 32
TOLERANCE = 1e-5


def recurrence(inputs: DeltaInputs, state: Tensor) -> tuple[Tensor, list[Tensor]]:
    """out [N, L, V] and the state after every row, by the definition, in float64."""
    q, k, v, g, beta = (x.double() for x in inputs)
    state, outs, states = state.double(), [], []
    for t in range(q.shape[1]):
        state = torch.exp(g[:, t]).unsqueeze(-1) * state
        held = torch.einsum("nd,ndv->nv", k[:, t], state)
        write = beta[:, t, None] * (v[:, t] - held)
        state = state + torch.einsum("nd,nv->ndv", k[:, t], write)
        outs.append(torch.einsum("nd,ndv->nv", q[:, t], state))
        states.append(state)
    return torch.stack(outs, 1), states


def random_inputs(length: int, seed: int, low: float, high: float) -> tuple[DeltaInputs, Tensor]:
    """Normalised rows with log-decay between the two bounds, and a state to start from."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    q = F.normalize(normal(SEQUENCES, length, DIM), dim=-1) * DIM**-0.5
    k = F.normalize(normal(SEQUENCES, length, DIM), dim=-1)
    g = low + (high - low) * torch.rand(SEQUENCES, length, DIM, generator=generator)
    beta = torch.rand(SEQUENCES, length, generator=generator)
    v = normal(SEQUENCES, length, DIM)
    return DeltaInputs(q, k, v, g, beta), normal(SEQUENCES, DIM, DIM)


def assert_chunked_is_recurrence(
    inputs: DeltaInputs, initial: Tensor, chunk: int, tolerance: float = TOLERANCE
) -> None:
    """Outputs, states before each chunk and the last state agree, relative to their size."""
    expected, states = recurrence(inputs, initial)
    found = delta_rule.chunked(inputs, initial, chunk)
    before = [initial.double(), *states[chunk - 1 :: chunk]]
    pairs = [(found.out, expected), (found.final, before[-1])]
    pairs += [(found.states[:, i], before[i]) for i in range(found.states.shape[1])]
    for ours, exact in pairs:
        assert torch.isfinite(ours).all()
        assert float((ours - exact).norm() / exact.norm().clamp_min(1e-30)) <= tolerance


@pytest.mark.parametrize("chunk", [16, 64])
@pytest.mark.parametrize(
    ("low", "high"), [(-5.0, 0.0), (-5.0, -5.0), (-1e-4, 0.0), (0.0, 0.0), (-0.3, -0.1)]
)
def test_chunked_is_the_recurrence(chunk: int, low: float, high: float) -> None:
    inputs, initial = random_inputs(128, 3, low, high)
    assert_chunked_is_recurrence(inputs, initial, chunk)


@settings(max_examples=25, deadline=None)
@given(
    blocks=st.integers(1, 5),
    seed=st.integers(0, 2**20),
    low=st.floats(-5.0, -0.5),
    high=st.floats(-0.4, 0.0),
)
def test_chunked_is_the_recurrence_for_any_decay(
    blocks: int, seed: int, low: float, high: float
) -> None:
    inputs, initial = random_inputs(16 * blocks, seed, low, high)
    assert_chunked_is_recurrence(inputs, initial, 16)


@pytest.mark.parametrize("chunk", [16, 64])
def test_some_channels_forget_at_once_and_others_never(chunk: int) -> None:
    inputs, initial = random_inputs(128, 4, 0.0, 0.0)
    g = torch.zeros_like(inputs.g)
    g[..., ::2] = -5.0
    assert_chunked_is_recurrence(inputs._replace(g=g), initial, chunk)


@pytest.mark.parametrize("chunk", [16, 64])
def test_identical_keys_written_in_full(chunk: int) -> None:
    # The triangular system is then as far from the identity as it can be.
    inputs, initial = random_inputs(128, 5, 0.0, 0.0)
    inputs = inputs._replace(
        k=inputs.k[:, :1].expand_as(inputs.k), beta=torch.ones_like(inputs.beta)
    )
    assert_chunked_is_recurrence(inputs, initial, chunk, 1e-4)
    # A key written in full holds the last value alone.
    final = delta_rule.chunked(inputs, initial, chunk).final
    held = torch.einsum("nd,ndv->nv", inputs.k[:, 0], final)
    assert torch.allclose(held, inputs.v[:, -1], atol=1e-4)


def test_identical_keys_with_fast_decay() -> None:
    inputs, initial = random_inputs(64, 6, -5.0, -3.0)
    assert_chunked_is_recurrence(
        inputs._replace(k=inputs.k[:, :1].expand_as(inputs.k)), initial, 16
    )


def test_step_is_the_recurrence() -> None:
    inputs, state = random_inputs(40, 7, -5.0, 0.0)
    expected, states = recurrence(inputs, state)
    for t in range(40):
        out, state = delta_rule.step(state, DeltaInputs(*(x[:, t] for x in inputs)))
        assert torch.allclose(out.double(), expected[:, t], atol=1e-5)
        assert torch.allclose(state.double(), states[t], atol=1e-5)


def test_rows_without_write_and_decay_leave_the_state_alone() -> None:
    inputs, initial = random_inputs(32, 8, -5.0, 0.0)
    g, beta = inputs.g.clone(), inputs.beta.clone()
    g[:, 21:], beta[:, 21:] = 0.0, 0.0
    final = delta_rule.chunked(inputs._replace(g=g, beta=beta), initial).final
    _, states = recurrence(inputs, initial)
    assert torch.allclose(final.double(), states[20], atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(power=st.integers(0, 6), seed=st.integers(0, 2**20), size=st.floats(0.0, 1.0))
def test_inverse_of_unit_lower_triangles(power: int, seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    strict = torch.randn(2, 3, 2**power, 2**power, generator=generator).tril(-1) * size * 0.3
    eye = torch.eye(2**power, dtype=torch.float64)
    found = delta_rule.unit_lower_inverse(strict).double()
    exact = torch.linalg.inv(eye + strict.double())
    assert float((found - exact).norm()) <= 1e-4 * float(exact.norm())
    assert torch.equal(found, found.tril())
