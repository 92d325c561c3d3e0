"""KDA layers: projections and gates over flat rows, recurrences along requests.

Decode rows run step by step and store the state after each row, so that the next step can go on
from whichever row turned out to be the last accepted one. Prefill chunks run in chunked form and
leave states at block boundaries for the prefix cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.caches import LinearCache
from evalsuite.mini.config import MiniConfig
from evalsuite.mini.metadata import Group, SnapshotPlan, StepMetadata
from evalsuite.mini.model import delta_rule
from evalsuite.mini.model.norms import gated_rms_norm, l2_norm
from evalsuite.mini.weights import LinearWeights


class Rows(NamedTuple):
    """Per-row inputs of the recurrence: qkv [T, 3W], decay [T, W] (log), beta [T, heads]."""

    qkv: Tensor
    decay: Tensor
    beta: Tensor


def linear_attention(
    x: Tensor, weights: LinearWeights, cache: LinearCache, meta: StepMetadata, config: MiniConfig
) -> Tensor:
    """One KDA sublayer over flat rows x [T, H]; updates the layer's states."""
    width, dim, heads = config.linear_dim, config.linear_head_dim, config.linear_num_heads
    qkv, forget, gate, write = F.linear(x, weights.in_proj).split([3 * width, dim, dim, heads], -1)
    forget = F.linear(forget, weights.f_b).float() + weights.dt_bias
    forget = weights.rate * forget.unflatten(-1, (heads, dim))
    decay = config.linear_lower_bound * torch.sigmoid(forget)
    rows = Rows(qkv, decay.flatten(1), torch.sigmoid(write).float())
    out = torch.zeros(x.shape[0], heads, dim, dtype=torch.float32, device=x.device)
    if meta.decode is not None:
        out = _scatter(out, meta.decode, _decode(rows, weights, cache, meta, meta.decode, config))
    if meta.prefill is not None:
        out = _scatter(
            out, meta.prefill, _prefill(rows, weights, cache, meta, meta.prefill, config)
        )
    gate = F.linear(gate, weights.g_b).unflatten(-1, (heads, dim))
    # The kernel's output is rounded to the model's type before the norm, as published.
    normed = gated_rms_norm(out.to(x.dtype), gate, weights.o_norm, config.rms_norm_eps, x.dtype)
    return F.linear(normed.flatten(1), weights.o_proj)


def _scatter(out: Tensor, group: Group, values: Tensor) -> Tensor:
    """Put values [b, W, heads, D] of the group's valid rows into out [T, heads, D]."""
    if group.covers:
        return values.flatten(0, 1)
    out[group.rows[group.valid]] = values[group.valid]
    return out


def _convolve(
    window: Tensor, weights: LinearWeights, taps: int, config: MiniConfig
) -> tuple[Tensor, ...]:
    """Convolve window [b, taps - 1 + L, 3W]; returns float32 q, k, v [b, L, heads, D]."""
    length = window.shape[1] - taps + 1
    wide = window.float()
    shifted = [wide[:, i : i + length] * weights.conv[:, i] for i in range(taps)]
    mixed = F.silu(torch.stack(shifted).sum(0)).to(window.dtype).float()
    shape = (config.linear_num_heads, config.linear_head_dim)
    q, k, v = (part.unflatten(-1, shape) for part in mixed.split(config.linear_dim, -1))
    return l2_norm(q) * config.linear_head_dim**-0.5, l2_norm(k), v


def _decode(
    rows: Rows,
    weights: LinearWeights,
    cache: LinearCache,
    meta: StepMetadata,
    group: Group,
    config: MiniConfig,
) -> Tensor:
    taps, width = config.linear_conv_kernel_dim, group.rows.shape[1]
    slots, accepted = meta.state_slots[group.requests], meta.accepted[group.requests]
    at = accepted.unsqueeze(1) + torch.arange(taps - 1, device=slots.device)
    window = torch.cat([cache.conv[slots.unsqueeze(1), at], rows.qkv[group.rows]], 1)
    cache.conv[slots, : width + taps - 2] = window[:, 1:]
    q, k, v = _convolve(window, weights, taps, config)
    g = rows.decay[group.rows].unflatten(-1, (config.linear_num_heads, -1))
    beta = rows.beta[group.rows]
    state, outs = _states(cache, slots, accepted), []
    for j in range(width):
        row = delta_rule.DeltaInputs(q[:, j], k[:, j], v[:, j], g[:, j], beta[:, j])
        out, state = delta_rule.step(state, row)
        cache.state[slots, j] = state
        outs.append(out)
    return torch.stack(outs, 1)


def _states(cache: LinearCache, slots: Tensor, accepted: Tensor) -> Tensor:
    """States [b, heads, D, D] after the last accepted row of each request."""
    per_request = cache.state.shape[1]
    return cache.state.flatten(0, 1).index_select(0, slots * per_request + accepted)


def _prefill(
    rows: Rows,
    weights: LinearWeights,
    cache: LinearCache,
    meta: StepMetadata,
    group: Group,
    config: MiniConfig,
) -> Tensor:
    taps, count, length = config.linear_conv_kernel_dim, *group.rows.shape
    slots, accepted = meta.state_slots[group.requests], meta.accepted[group.requests]
    at = accepted.unsqueeze(1) + torch.arange(taps - 1, device=slots.device)
    window = torch.cat([cache.conv[slots.unsqueeze(1), at], rows.qkv[group.rows]], 1)
    q, k, v = _convolve(window, weights, taps, config)
    g = rows.decay[group.rows].unflatten(-1, (config.linear_num_heads, -1))
    valid = group.valid.unsqueeze(-1)
    g, beta = g * valid.unsqueeze(-1), rows.beta[group.rows] * valid
    pad = -length % delta_rule.BLOCK
    inputs = delta_rule.DeltaInputs(*(_by_head(t, pad) for t in (q, k, v, g, beta.unsqueeze(-1))))
    inputs = inputs._replace(beta=inputs.beta.squeeze(-1))
    heads = config.linear_num_heads
    result = delta_rule.chunked(inputs, _states(cache, slots, accepted).flatten(0, 1))
    cache.state[slots, 0] = result.final.unflatten(0, (count, heads))
    ends = group.valid.sum(1, keepdim=True) + torch.arange(taps - 1, device=slots.device)
    requests = torch.arange(count, device=slots.device).unsqueeze(1)
    cache.conv[slots, : taps - 1] = window[requests, ends]
    if meta.snapshots is not None:
        _keep(cache, meta.snapshots, window, result, heads, taps)
    out: Tensor = result.out.unflatten(0, (count, heads)).transpose(1, 2)[:, :length]
    return out


def _keep(
    cache: LinearCache,
    plan: SnapshotPlan,
    window: Tensor,
    result: delta_rule.DeltaResult,
    heads: int,
    taps: int,
) -> None:
    states = torch.cat([result.states, result.final.unsqueeze(1)], 1).unflatten(0, (-1, heads))
    cache.kept_state[plan.slot] = states[plan.request, :, plan.chunk]
    at = (plan.chunk * delta_rule.BLOCK).unsqueeze(1) + torch.arange(
        taps - 1, device=plan.slot.device
    )
    cache.kept_conv[plan.slot] = window[plan.request.unsqueeze(1), at]


def _by_head(x: Tensor, pad: int) -> Tensor:
    """[b, L, heads, D] to [b * heads, L + pad, D]."""
    return F.pad(x, (0, 0, 0, 0, 0, pad)).transpose(1, 2).flatten(0, 1)
