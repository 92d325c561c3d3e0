"""The gated delta rule of KDA (Kimi delta attention), chunked and step by step.

Per head, with state S [K, V], log-decay g_t [K], write strength b_t:

    S   <- diag(exp(g_t)) S
    S   <- S + k_t (b_t (v_t - k_t^T S))^T
    o_t  = q_t^T S

The chunked form solves the triangular system of one chunk at once (Yang et al., "Parallelizing
linear transformers with the delta rule", 2024; Kimi Team, "Kimi Linear", 2025). Per-channel decay
cannot be factored over a long chunk without overflow, so products run against the start of
16-step blocks: with g >= -5 the exponent stays below 80, and exp(80) < float32's maximum.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 16
_EXPONENT_LIMIT = 80.0


class DeltaInputs(NamedTuple):
    """q, k [N, L, D] (k and q normalised, q scaled), v [N, L, V], g [N, L, D], beta [N, L].

    N runs over sequences and heads. All float32. Rows with beta 0 and g 0 leave the state alone.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor


class DeltaResult(NamedTuple):
    """out [N, L, V]; states [N, L / chunk, D, V] *before* each chunk; final [N, D, V]."""

    out: Tensor
    states: Tensor
    final: Tensor


def chunked(inputs: DeltaInputs, initial: Tensor, chunk: int = BLOCK) -> DeltaResult:
    """Run the rule over L rows, L and `chunk` multiples of 16; initial [N, D, V]."""
    q, k, v, g, beta = (x.unflatten(1, (-1, chunk)) for x in inputs)
    total = g.cumsum(2)
    grown = total.exp()
    strict = _decayed_products(k, k, total).tril(-1) * beta.unsqueeze(-1)
    solve = unit_lower_inverse(strict)
    writes = solve @ (v * beta.unsqueeze(-1))
    reads = solve @ (k * grown * beta.unsqueeze(-1))
    last = total[:, :, -1:]
    keys_to_end = (k * (last - total).exp()).transpose(-1, -2)
    decay = last.exp().transpose(-1, -2)
    states, news, state = [], [], initial
    for c in range(q.shape[1]):
        states.append(state)
        new = writes[:, c] - reads[:, c] @ state
        news.append(new)
        state = state * decay[:, c] + keys_to_end[:, c] @ new
    before, fresh = torch.stack(states, 1), torch.stack(news, 1)
    out = (q * grown) @ before + _decayed_products(q, k, total).tril() @ fresh
    return DeltaResult(out.flatten(1, 2), before, state)


def _decayed_products(left: Tensor, right: Tensor, total: Tensor) -> Tensor:
    """sum_d left_i right_j exp(G_i - G_j) for i >= j; entries above the diagonal are arbitrary.

    left, right, total (cumulated g) [N, C, chunk, D]; returns [N, C, chunk, chunk].
    """
    chunk = total.shape[2]
    blocks = chunk // BLOCK
    starts = F.pad(total, (0, 0, 1, 0))[:, :, 0:chunk:BLOCK]
    rows = left.unflatten(2, (blocks, BLOCK))
    rows = rows * (total.unflatten(2, (blocks, BLOCK)) - starts.unsqueeze(3)).exp()
    exponent = starts.unsqueeze(3) - total.unsqueeze(2)
    columns = right.unsqueeze(2) * exponent.clamp(max=_EXPONENT_LIMIT).exp()
    products: Tensor = rows @ columns.transpose(-1, -2)
    return products.flatten(2, 3)


def unit_lower_inverse(strict: Tensor) -> Tensor:
    """(I + strict)^-1 for strictly lower triangular [..., C, C], C a power of two.

    Diagonal blocks are joined pairwise, inv([[A, 0], [B, D]]) = [[A', 0], [-D' B A', D']]: as
    stable as forward substitution, in log2(C) rounds of batched products.
    """
    size = strict.shape[-1]
    inverse = torch.ones(*strict.shape[:-2], size, 1, 1, dtype=strict.dtype, device=strict.device)
    width = 1
    while width < size:
        pairs = size // (2 * width)
        tiles = strict.unflatten(-1, (pairs, 2 * width)).unflatten(-3, (pairs, 2 * width))
        tiles = tiles.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        below = tiles[..., width:, :width]
        first, second = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = -(second @ below @ first)
        top = torch.cat([first, torch.zeros_like(first)], dim=-1)
        inverse = torch.cat([top, torch.cat([corner, second], dim=-1)], dim=-2)
        width *= 2
    return inverse.squeeze(-3)


def step(state: Tensor, row: DeltaInputs) -> tuple[Tensor, Tensor]:
    """One row: state [N, D, V] and inputs without the L dimension; returns out [N, V], state."""
    state = state * row.g.exp().unsqueeze(-1)
    held = torch.matmul(row.k.unsqueeze(-2), state).squeeze(-2)
    delta = (row.v - held) * row.beta.unsqueeze(-1)
    state = torch.addcmul(state, row.k.unsqueeze(-1), delta.unsqueeze(-2))
    return torch.matmul(row.q.unsqueeze(-2), state).squeeze(-2), state
