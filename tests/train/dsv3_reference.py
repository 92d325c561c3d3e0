"""The MTP layer of DeepSeek-V3 written directly from its description, in float64.

One row at a time, with a growing list of stored keys as a serving engine has one, rope as a
rotation of complex numbers, every head on its own. Nothing of the training code is used but the
configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from evalsuite.train.dsv3.config import Dsv3Config


class MtpReference:
    """One MTP layer over published tensors."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Dsv3Config) -> None:
        self.config = config
        self.tensors = {name: tensor.double() for name, tensor in tensors.items()}
        self.prefix = f"model.layers.{config.num_hidden_layers}."

    def weight(self, name: str) -> Tensor:
        """A tensor of the layer, by its name behind the layer's prefix."""
        return self.tensors[f"{self.prefix}{name}"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Root-mean-square norm."""
        mean = (x * x).mean()
        return x / torch.sqrt(mean + self.config.rms_norm_eps) * self.weight(f"{name}.weight")

    def turned(self, x: Tensor, position: int) -> Tensor:
        """Neighbouring channels of x [D] as complex numbers, turned by the position's angles."""
        pairs = torch.view_as_complex(x.view(-1, 2))
        exponent = torch.arange(len(pairs), dtype=torch.float64) * 2 / len(x)
        angle = position / self.config.rope_theta**exponent
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten()

    def stored(self, x: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """What the cache keeps of a row: normed latent, and the key's rope part."""
        low = self.weight("self_attn.kv_a_proj_with_mqa.weight") @ x
        rank = self.config.kv_lora_rank
        latent = self.norm(low[:rank], "self_attn.kv_a_layernorm")
        return latent, self.turned(low[rank:], position)

    def attention(self, x: Tensor, position: int, cache: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Attention of the row with normed input x to all of `cache`."""
        config = self.config
        nope, width = config.qk_nope_head_dim, config.qk_nope_head_dim + config.v_head_dim
        resid = self.norm(self.weight("self_attn.q_a_proj.weight") @ x, "self_attn.q_a_layernorm")
        query = self.weight("self_attn.q_b_proj.weight") @ resid
        mixed = []
        for head in range(config.num_attention_heads):
            own = query[head * config.qk_head_dim : (head + 1) * config.qk_head_dim]
            expand = self.weight("self_attn.kv_b_proj.weight")[head * width : (head + 1) * width]
            rotated = self.turned(own[nope:], position)
            keys = [expand[:nope] @ latent for latent, _ in cache]
            scores = torch.stack(
                [
                    own[:nope] @ key + rotated @ rope
                    for key, (_, rope) in zip(keys, cache, strict=True)
                ]
            )
            share = (scores / config.qk_head_dim**0.5).softmax(0)
            values = torch.stack([expand[nope:] @ latent for latent, _ in cache])
            mixed.append(share @ values)
        return self.weight("self_attn.o_proj.weight") @ torch.cat(mixed)

    def swiglu(self, x: Tensor, name: str) -> Tensor:
        """SwiGLU."""
        gate = self.weight(f"{name}.gate_proj.weight") @ x
        up = self.weight(f"{name}.up_proj.weight") @ x
        return self.weight(f"{name}.down_proj.weight") @ (gate * torch.sigmoid(gate) * up)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The mixture of experts, group by group."""
        config = self.config
        scores = torch.sigmoid(self.weight("mlp.gate.weight") @ x)
        ranked = scores + self.weight("mlp.gate.e_score_correction_bias")
        size = config.n_routed_experts // config.n_group
        groups = [range(g * size, (g + 1) * size) for g in range(config.n_group)]

        def worth(group: range) -> float:
            return sum(sorted((float(ranked[e]) for e in group), reverse=True)[:2])

        allowed = [e for g in sorted(groups, key=worth)[-config.topk_group :] for e in g]
        chosen = sorted(allowed, key=lambda e: float(ranked[e]))[-config.num_experts_per_tok :]
        total = sum(float(scores[e]) for e in chosen) if config.norm_topk_prob else 1.0
        out = self.swiglu(x, "mlp.shared_experts")
        for expert in chosen:
            share = float(scores[expert]) / total * config.routed_scaling_factor
            out = out + share * self.swiglu(x, f"mlp.experts.{expert}")
        return out

    def row(
        self, hidden: Tensor, token: int, position: int, cache: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Post-norm hidden of one row; its key is appended to `cache` first."""
        embedded = self.tensors["model.embed_tokens.weight"][token]
        if position == 0:
            embedded = torch.zeros_like(embedded)
        both = torch.cat([self.norm(embedded, "enorm"), self.norm(hidden, "hnorm")])
        x = self.weight("eh_proj.weight") @ both
        normed = self.norm(x, "input_layernorm")
        cache.append(self.stored(normed, position))
        x = x + self.attention(normed, position, cache)
        x = x + self.feed_forward(self.norm(x, "post_attention_layernorm"))
        return self.norm(x, "shared_head.norm")

    def chain(self, hidden: Tensor, tokens: list[int], position: int, depth: int) -> Tensor:
        """Post-norm hidden states [depth, H] of the drafts behind the row at `position`.

        hidden [T, H] of the target; the drafts' tokens are given by `tokens`.
        """
        cache: list[tuple[Tensor, Tensor]] = []
        for at in range(position + 1):
            state = self.row(hidden[at].double(), tokens[at + 1], at, cache)
        states = [state]
        for step in range(1, depth):
            at = position + step
            states.append(self.row(states[-1], tokens[at + 1], at, cache))
        return torch.stack(states)
