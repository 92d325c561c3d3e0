"""The MTP layer written directly from its published description, in float64.

Whole sequences, no caches, no fused or absorbed weights, one row at a time. Names are those of the
checkpoint; nothing of the engine is used but its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.config import MiniConfig


class MtpReference:
    """One MTP layer over published tensors."""

    def __init__(self, tensors: Mapping[str, Tensor], config: MiniConfig) -> None:
        self.config = config
        self.tensors = {name: tensor.double() for name, tensor in tensors.items()}
        self.prefix = f"model.layers.{config.num_hidden_layers}."

    def weight(self, name: str) -> Tensor:
        """A tensor of the layer, by its name behind the layer's prefix."""
        return self.tensors.get(f"{self.prefix}{name}.weight", self.tensors.get(self.prefix + name))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Root-mean-square norm."""
        mean = (x * x).mean(-1, keepdim=True)
        return x / torch.sqrt(mean + self.config.rms_norm_eps) * self.weight(name)

    def joined(self, hidden: Tensor, next_token: int, position: int) -> Tensor:
        """Input of the decoder block at one position: embedding and hidden, normed and joined."""
        embedded = self.tensors["model.embed_tokens.weight"][next_token]
        if position == 0:
            embedded = torch.zeros_like(embedded)
        both = [self.norm(embedded, "enorm"), self.norm(hidden, "hnorm")]
        return self.weight("eh_proj") @ torch.cat(both)

    def pools(self, rows: list[Tensor]) -> list[Tensor]:
        """Key of every complete pool over the normed block inputs of all positions."""
        keys, kpool = [], self.config.index_kpool
        for start in range(0, len(rows) - kpool + 1, kpool):
            group = rows[start : start + kpool]
            key = torch.stack([self.weight("self_attn.indexer.wk") @ x for x in group])
            key = F.layer_norm(
                key,
                key.shape[-1:],
                self.weight("self_attn.indexer.k_norm"),
                self.weight("self_attn.indexer.k_norm.bias"),
                1e-6,
            )
            gate = self.weight("self_attn.indexer.index_kpool_compress_gate")
            ape = self.weight("self_attn.indexer.index_kpool_compress_ape")
            score = torch.stack([gate @ x for x in group]) + ape
            keys.append((score.softmax(0) * key).sum(0))
        return keys

    def selected(self, rows: list[Tensor], position: int) -> list[int]:
        """Positions that the row at `position` attends to: its best pools, and the live tail."""
        config, x = self.config, rows[position]
        resid = self.norm(self.weight("self_attn.q_a_proj") @ x, "self_attn.q_a_layernorm")
        query = (self.weight("self_attn.indexer.wq_b") @ resid).view(config.index_n_heads, -1)
        share = self.weight("self_attn.indexer.weights_proj") @ x * config.index_n_heads**-0.5
        scores = [
            float((share * F.relu(query @ key * config.index_head_dim**-0.5)).sum())
            for key in self.pools(rows[: position + 1])
        ]
        best = sorted(range(len(scores)), key=lambda pool: -scores[pool])
        best = best[: config.index_topk // config.index_kpool]
        chosen = [pool * config.index_kpool + i for pool in best for i in range(config.index_kpool)]
        return chosen + list(range(len(scores) * config.index_kpool, position + 1))

    def attention(self, x: Tensor, keys: list[Tensor]) -> Tensor:
        """Attention of the row with normed block input x to the rows with inputs `keys`."""
        config = self.config
        heads, nope = config.num_attention_heads, config.qk_nope_head_dim
        resid = self.norm(self.weight("self_attn.q_a_proj") @ x, "self_attn.q_a_layernorm")
        query = (self.weight("self_attn.q_b_proj") @ resid).view(heads, nope)
        low = torch.stack([self.weight("self_attn.kv_a_proj_with_mqa") @ key for key in keys])
        expanded = self.norm(low, "self_attn.kv_a_layernorm") @ self.weight("self_attn.kv_b_proj").T
        expanded = expanded.view(len(keys), heads, nope + config.v_head_dim)
        score = torch.einsum("hd,nhd->hn", query, expanded[..., :nope]) * nope**-0.5
        mixed = torch.einsum("hn,nhd->hd", score.softmax(-1), expanded[..., nope:])
        return self.weight("self_attn.o_proj") @ mixed.flatten()

    def swiglu(self, x: Tensor, name: str) -> Tensor:
        """Clamped SwiGLU."""
        limit = self.config.swiglu_limit
        gate = (self.weight(f"{name}.gate_proj") @ x).clamp(max=limit)
        up = (self.weight(f"{name}.up_proj") @ x).clamp(-limit, limit)
        return self.weight(f"{name}.down_proj") @ (gate * torch.sigmoid(gate) * up)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The layer's FFN, of the kind of the last base layer."""
        config = self.config
        if config.mlp_layer_types[-1] == "dense":
            return self.swiglu(x, "mlp")
        scores = torch.sigmoid(self.weight("mlp.gate") @ x)
        ranked = scores + self.weight("mlp.gate.e_score_correction_bias")
        chosen = ranked.argsort(descending=True)[: config.num_experts_per_tok].tolist()
        total = sum(float(scores[e]) for e in chosen) if config.norm_topk_prob else 1.0
        out = self.swiglu(x, "mlp.shared_experts")
        for expert in chosen:
            share = scores[expert] / total * config.routed_scaling_factor
            out = out + share * self.swiglu(x, f"mlp.experts.{expert}")
        return out

    def output(self, joined: Tensor, attended: list[Tensor]) -> Tensor:
        """Post-norm hidden of one row over the normed block inputs that it attends to."""
        normed = self.norm(joined, "input_layernorm")
        x = joined + self.attention(normed, attended)
        x = x + self.feed_forward(self.norm(x, "post_attention_layernorm"))
        return self.norm(x, "shared_head.norm")

    def inputs(self, tokens: list[int], hidden: Tensor) -> list[Tensor]:
        """Block inputs of step 0: hidden [T, H] of the target, tokens at least T + 1."""
        return [self.joined(row, tokens[p + 1], p) for p, row in enumerate(hidden.double())]

    def first_step(self, tokens: list[int], hidden: Tensor) -> Tensor:
        """Post-norm hidden of step 0 at every position, [T, H]."""
        joined = self.inputs(tokens, hidden)
        rows = [self.norm(x, "input_layernorm") for x in joined]
        outputs = [
            self.output(x, [rows[i] for i in self.selected(rows, p)]) for p, x in enumerate(joined)
        ]
        return torch.stack(outputs)

    def drafts(
        self, tokens: list[int], hidden: Tensor, k: int, share: bool
    ) -> tuple[Tensor, list[int]]:
        """Post-norm hidden [k, H] and tokens of k drafts behind the last row of `hidden`.

        `share`: later steps attend to what step 0 selected, and to nothing newer.
        """
        joined = self.inputs(tokens, hidden)
        rows = [self.norm(x, "input_layernorm") for x in joined]
        chosen = self.selected(rows, len(rows) - 1)
        states = [self.output(joined[-1], [rows[i] for i in chosen])]
        drafted = [self.token(states[-1])]
        for _ in range(k - 1):
            x = self.joined(states[-1], drafted[-1], len(rows))
            rows.append(self.norm(x, "input_layernorm"))
            if not share:
                chosen = self.selected(rows, len(rows) - 1)
            states.append(self.output(x, [rows[i] for i in chosen]))
            drafted.append(self.token(states[-1]))
        return torch.stack(states), drafted

    def token(self, hidden: Tensor) -> int:
        """The most likely token behind a hidden state, by the target's head."""
        return int((self.tensors["lm_head.weight"] @ hidden).argmax())
