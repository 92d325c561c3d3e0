"""The training forward pass: dense [batch, time] tensors, differentiable, no caches."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.model.norms import rms_norm
from evalsuite.train.dsv3.attention import Heads, causal, chained, rotate
from evalsuite.train.dsv3.config import Dsv3Config
from evalsuite.train.dsv3.mixture import experts, route


class Dsv3Forward:
    """Forward passes over a dict of parameters under their published names.

    With `blind` all attention returns zeros.
    """

    def __init__(
        self, params: Mapping[str, Tensor], config: Dsv3Config, blind: bool = False
    ) -> None:
        self.params, self.config, self.blind = params, config, blind
        self.loads: dict[str, Tensor] = {}

    def trunk(self, tokens: Tensor) -> Tensor:
        """Hidden states after the final norm, [B, T, H], for tokens [B, T]."""
        x = self._embed(tokens)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        for index in range(self.config.num_hidden_layers):
            prefix = f"model.layers.{index}."
            heads = self._heads(self._norm(x, f"{prefix}input_layernorm"), prefix, positions)
            x = self._finish(x, causal(heads, self.config.softmax_scale), prefix)
        return self._norm(x, "model.norm")

    def draft(
        self, hidden: Tensor, tokens: Tensor, depth: int, rows: Tensor | None = None
    ) -> list[Tensor]:
        """Post-norm hidden states of `depth` recursions of the MTP layer.

        hidden [B, T, H] of the trunk; tokens [B, T + depth]: the row at position p takes token
        p + 1 + j at step j. Step 0 has all rows, [B, T, H], the later ones those at `rows` [R]
        (all if None), [B, R, H]. A chain attends to step 0's keys up to its row and to its own
        later ones, as an engine does that stores each draft's key behind the last one.
        """
        prefix, length = f"model.layers.{self.config.num_hidden_layers}.", hidden.shape[1]
        positions = torch.arange(length, device=hidden.device)
        embedded = self._embed(tokens[:, 1 : length + 1]) * (positions > 0)[:, None]
        x = self._join(embedded, hidden, prefix)
        stored = self._heads(self._norm(x, f"{prefix}input_layernorm"), prefix, positions)
        x = self._finish(x, causal(stored, self.config.softmax_scale), prefix)
        outputs = [self._norm(x, f"{prefix}shared_head.norm")]
        rows, chain = positions if rows is None else rows, list[Heads]()
        for step in range(1, depth):
            before = outputs[-1].index_select(1, rows) if step == 1 else outputs[-1]
            x = self._join(self._embed(tokens[:, rows + step + 1]), before, prefix)
            normed = self._norm(x, f"{prefix}input_layernorm")
            chain.append(self._heads(normed, prefix, rows + step))
            attended = chained(stored, chain, rows, self.config.softmax_scale)
            x = self._finish(x, attended, prefix)
            outputs.append(self._norm(x, f"{prefix}shared_head.norm"))
        return outputs

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits of hidden states."""
        return F.linear(hidden, self.params["lm_head.weight"])

    def _embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.params["model.embed_tokens.weight"])

    def _join(self, embedded: Tensor, hidden: Tensor, prefix: str) -> Tensor:
        both = [self._norm(embedded, f"{prefix}enorm"), self._norm(hidden, f"{prefix}hnorm")]
        return self._linear(torch.cat(both, -1), f"{prefix}eh_proj")

    def _heads(self, x: Tensor, prefix: str, positions: Tensor) -> Heads:
        config, prefix = self.config, f"{prefix}self_attn."
        count, nope, rope = (
            config.num_attention_heads,
            config.qk_nope_head_dim,
            config.qk_rope_head_dim,
        )
        resid = self._norm(self._linear(x, f"{prefix}q_a_proj"), f"{prefix}q_a_layernorm")
        query = _by_head(self._linear(resid, f"{prefix}q_b_proj"), count)
        low = self._linear(x, f"{prefix}kv_a_proj_with_mqa")
        latent, turned = low.split([config.kv_lora_rank, rope], -1)
        latent = self._norm(latent, f"{prefix}kv_a_layernorm")
        expanded = _by_head(self._linear(latent, f"{prefix}kv_b_proj"), count)
        key, value = expanded.split([nope, config.v_head_dim], -1)
        turned = rotate(turned, positions, config.rope_theta)
        still, turning = query.split([nope, rope], -1)
        query = torch.cat([still, rotate(turning, positions, config.rope_theta)], -1)
        key = torch.cat([key, turned.unsqueeze(1).expand(-1, count, -1, -1)], -1)
        return Heads(query, key, value)

    def _finish(self, x: Tensor, attended: Tensor, prefix: str) -> Tensor:
        if self.blind:
            attended = torch.zeros_like(attended)
        joined = attended.transpose(1, 2).flatten(2)
        x = x + self._linear(joined, f"{prefix}self_attn.o_proj")
        normed = self._norm(x, f"{prefix}post_attention_layernorm")
        return x + self._feed_forward(normed, f"{prefix}mlp.")

    def _feed_forward(self, x: Tensor, prefix: str) -> Tensor:
        if f"{prefix}gate.weight" not in self.params:
            return self._swiglu(x, prefix)
        bias = self.params[f"{prefix}gate.e_score_correction_bias"]
        share = route(x, self.params[f"{prefix}gate.weight"], bias, self.config)
        self.loads.setdefault(prefix, (share.detach() > 0).float().flatten(0, -2).mean(0))
        each = [f"{prefix}experts.{e}." for e in range(self.config.n_routed_experts)]
        gate, up = (
            torch.cat([self.params[f"{e}{part}_proj.weight"] for e in each])
            for part in ("gate", "up")
        )
        down = torch.cat([self.params[f"{e}down_proj.weight"] for e in each], 1)
        routed = experts(x, share, gate, up, down)
        return routed + self._swiglu(x, f"{prefix}shared_experts.")

    def _swiglu(self, x: Tensor, prefix: str) -> Tensor:
        inner = F.silu(self._linear(x, f"{prefix}gate_proj")) * self._linear(x, f"{prefix}up_proj")
        return self._linear(inner, f"{prefix}down_proj")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.params[f"{name}.weight"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self.params[f"{name}.weight"], self.config.rms_norm_eps)


def _by_head(x: Tensor, heads: int) -> Tensor:
    """[B, T, heads * D] to [B, heads, T, D]."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)
