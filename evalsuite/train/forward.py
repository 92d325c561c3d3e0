"""The training forward pass: dense [batch, time] tensors, differentiable, no caches.

It shares the sublayer functions with the inference path where these have no cache, and writes
out attention and the delta rule over whole sequences. A test holds the two paths together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.mini.config import LINEAR, MiniConfig
from evalsuite.mini.model import delta_rule, mhc, moe, norms

CHUNK = 64


@dataclass(frozen=True, slots=True)
class IndexTerms:
    """What the indexer's loss needs of one sparse layer: detached inputs and attention tensors."""

    prefix: str
    hidden: Tensor
    q_resid: Tensor
    query: Tensor
    key: Tensor


class TrainForward:
    """Forward passes over a dict of parameters under their published names.

    With `blind` all sparse attention returns zeros: what is still answered then is carried by the
    recurrent layers alone.
    """

    def __init__(
        self, params: Mapping[str, Tensor], config: MiniConfig, blind: bool = False
    ) -> None:
        self.blind = blind
        self.params = params
        self.config = config
        self.loads: dict[str, Tensor] = {}
        self.log_decays: list[Tensor] = []

    def trunk(self, tokens: Tensor, sparse: bool) -> tuple[Tensor, list[IndexTerms]]:
        """Hidden states after the final norm, [B, T, H], for tokens [B, T]."""
        config, terms = self.config, []
        embedded = F.embedding(tokens, self.params["model.embed_tokens.weight"])
        streams = embedded.unsqueeze(2).expand(-1, -1, config.hc_mult, -1)
        for index in range(config.num_hidden_layers):
            prefix = f"model.layers.{index}."
            x, mixing = mhc.collapse(streams, self._site(prefix, "attn"), config)
            x = self._norm(x, f"{prefix}input_layernorm")
            if config.layer_types[index] == LINEAR:
                x = self._linear_attention(x, f"{prefix}self_attn.")
            else:
                x, term, _ = self._sparse_attention(x, f"{prefix}self_attn.", sparse)
                terms.append(term)
            streams = mhc.expand(x, streams, mixing)
            x, mixing = mhc.collapse(streams, self._site(prefix, "ffn"), config)
            x = self._norm(x, f"{prefix}post_attention_layernorm")
            x = self._ffn(x, f"{prefix}mlp.", config.mlp_layer_types[index])
            streams = mhc.expand(x, streams, mixing)
        return self._norm(streams.mean(2), "model.norm"), terms

    def draft(
        self, hidden: Tensor, tokens: Tensor, depth: int, sparse: bool
    ) -> tuple[list[Tensor], IndexTerms]:
        """Hidden states of `depth` recursions of the MTP layer, each [B, T, H].

        tokens [B, T + depth]: the row at position p takes token p + 1 at step 0 and p + 1 + j at
        step j. Later steps attend to what step 0 selected and stored, as in inference.
        """
        prefix = f"model.layers.{self.config.num_hidden_layers}."
        length, outputs, shared = hidden.shape[1], [], None
        for step in range(depth):
            embedded = F.embedding(
                tokens[:, step + 1 : step + 1 + length], self.params["model.embed_tokens.weight"]
            )
            if step == 0:
                embedded = embedded * (torch.arange(length, device=hidden.device) > 0)[:, None]
            joined = torch.cat(
                [self._norm(embedded, f"{prefix}enorm"), self._norm(hidden, f"{prefix}hnorm")], -1
            )
            x = self._linear(joined, f"{prefix}eh_proj")
            attended = self._norm(x, f"{prefix}input_layernorm")
            out, term, kept = self._sparse_attention(
                attended, f"{prefix}self_attn.", sparse, shared
            )
            if shared is None:
                shared, first_term = kept, term
            x = x + out
            normed = self._norm(x, f"{prefix}post_attention_layernorm")
            x = x + self._ffn(normed, f"{prefix}mlp.", self.config.mlp_layer_types[-1])
            hidden = self._norm(x, f"{prefix}shared_head.norm")
            outputs.append(hidden)
        return outputs, first_term

    def logits(self, hidden: Tensor) -> Tensor:
        """Vocabulary logits of hidden states."""
        return F.linear(hidden, self.params["lm_head.weight"])

    def index_scores(self, x: Tensor, q_resid: Tensor, rows: Tensor | None, prefix: str) -> Tensor:
        """Score of every complete pool for the chosen rows (all if None): [B, R, T / kpool]."""
        config = self.config
        heads, dim, pool = config.index_n_heads, config.index_head_dim, config.index_kpool
        key = F.layer_norm(
            self._linear(x, f"{prefix}wk").float(),
            (dim,),
            self.params[f"{prefix}k_norm.weight"].float(),
            self.params[f"{prefix}k_norm.bias"].float(),
            1e-6,
        )
        gate = F.linear(x, self.params[f"{prefix}index_kpool_compress_gate"]).float()
        gate = (
            gate.unflatten(1, (-1, pool)) + self.params[f"{prefix}index_kpool_compress_ape"].float()
        )
        pooled = (gate.softmax(2) * key.unflatten(1, (-1, pool))).sum(2)
        if rows is not None:
            x, q_resid = x[:, rows], q_resid[:, rows]
        query = self._linear(q_resid, f"{prefix}wq_b").unflatten(-1, (heads, dim))
        weights = self._linear(x, f"{prefix}weights_proj").float() * heads**-0.5
        flat = query.flatten(1, 2) @ pooled.to(query.dtype).transpose(1, 2)
        scores = F.relu(flat.unflatten(1, (-1, heads)) * dim**-0.5)
        return torch.einsum("brhp,brh->brp", scores.float(), weights)

    def selection(self, x: Tensor, q_resid: Tensor, prefix: str) -> Tensor:
        """Tokens that each row may attend to, bool [B, T, T]."""
        config = self.config
        length, pool = x.shape[1], config.index_kpool
        with torch.no_grad():
            scores = self.index_scores(x, q_resid, None, prefix)
            position = torch.arange(length, device=x.device)
            visible = (
                position[:, None] >= torch.arange(length // pool, device=x.device) * pool + pool - 1
            )
            scores = scores.masked_fill(~visible, float("-inf"))
            count = min(config.index_topk // pool, length // pool)
            chosen = torch.zeros_like(scores, dtype=torch.bool)
            chosen.scatter_(-1, scores.topk(count, -1).indices, True)
            tokens = (chosen & visible).repeat_interleave(pool, -1)
            tail = (position[None, :] // pool == (position[:, None] + 1) // pool) & (
                position[None, :] <= position[:, None]
            )
            return tokens | tail

    def _sparse_attention(
        self,
        x: Tensor,
        prefix: str,
        sparse: bool,
        shared: tuple[Tensor, Tensor, Tensor | None] | None = None,
    ) -> tuple[Tensor, IndexTerms, tuple[Tensor, Tensor, Tensor | None]]:
        config = self.config
        heads, nope = config.num_attention_heads, config.qk_nope_head_dim
        q_resid = self._norm(self._linear(x, f"{prefix}q_a_proj"), f"{prefix}q_a_layernorm")
        query = (
            self._linear(q_resid, f"{prefix}q_b_proj").unflatten(-1, (heads, nope)).transpose(1, 2)
        )
        if shared is None:
            latent = self._norm(
                self._linear(x, f"{prefix}kv_a_proj_with_mqa"), f"{prefix}kv_a_layernorm"
            )
            expanded = (
                self._linear(latent, f"{prefix}kv_b_proj")
                .unflatten(-1, (heads, -1))
                .transpose(1, 2)
            )
            key, value = expanded.split([nope, config.v_head_dim], -1)
            # Equal widths let a GPU use its fused attention.
            value = F.pad(value, (0, max(0, nope - config.v_head_dim)))
            mask = (
                self.selection(x.detach(), q_resid.detach(), f"{prefix}indexer.")
                if sparse
                else None
            )
            shared = (key, value, mask)
        key, value, mask = shared
        attended = F.scaled_dot_product_attention(
            query,
            key.to(query.dtype),
            value.to(query.dtype),
            attn_mask=None if mask is None else mask.unsqueeze(1).expand(-1, heads, -1, -1),
            is_causal=mask is None,
            scale=config.softmax_scale,
        )
        attended = attended[..., : config.v_head_dim].transpose(1, 2).flatten(2)
        if self.blind:
            attended = torch.zeros_like(attended)
        term = IndexTerms(
            f"{prefix}indexer.", x.detach(), q_resid.detach(), query.detach(), key.detach()
        )
        return self._linear(attended, f"{prefix}o_proj"), term, shared

    def _linear_attention(self, x: Tensor, prefix: str) -> Tensor:
        config = self.config
        heads, dim = config.linear_num_heads, config.linear_head_dim
        q, k, v = (
            self._conv(self._linear(x, f"{prefix}{n}_proj"), f"{prefix}{n}_conv1d") for n in "qkv"
        )
        forget = self._linear(self._linear(x, f"{prefix}f_a_proj"), f"{prefix}f_b_proj").float()
        forget = (forget + self.params[f"{prefix}dt_bias"].float()).unflatten(-1, (heads, dim))
        rate = self.params[f"{prefix}A_log"].float().exp().unsqueeze(-1)
        decay = config.linear_lower_bound * torch.sigmoid(rate * forget)
        self.log_decays.append(decay)
        beta = torch.sigmoid(self._linear(x, f"{prefix}b_proj").float())
        inputs = delta_rule.DeltaInputs(
            _by_head(norms.l2_norm(q.float().unflatten(-1, (heads, dim))) * dim**-0.5),
            _by_head(norms.l2_norm(k.float().unflatten(-1, (heads, dim)))),
            _by_head(v.float().unflatten(-1, (heads, dim))),
            _by_head(decay),
            _by_head(beta.unsqueeze(-1)).squeeze(-1),
        )
        zero = torch.zeros(x.shape[0] * heads, dim, dim, device=x.device)
        out = delta_rule.chunked(inputs, zero, CHUNK).out
        out = out.unflatten(0, (-1, heads)).transpose(1, 2)
        gate = self._linear(self._linear(x, f"{prefix}g_a_proj"), f"{prefix}g_b_proj")
        gate = gate.unflatten(-1, (heads, dim))
        normed = norms.gated_rms_norm(
            out, gate, self.params[f"{prefix}o_norm.weight"], config.rms_norm_eps, x.dtype
        )
        return self._linear(normed.flatten(2), f"{prefix}o_proj")

    def _conv(self, x: Tensor, name: str) -> Tensor:
        weight = self.params[f"{name}.weight"].float()
        width = weight.shape[-1]
        padded = F.pad(x.float(), (0, 0, width - 1, 0))
        taps = [padded[:, i : i + x.shape[1]] * weight[:, 0, i] for i in range(width)]
        return F.silu(torch.stack(taps).sum(0)).to(x.dtype)

    def _ffn(self, x: Tensor, prefix: str, kind: str) -> Tensor:
        limit = self.config.swiglu_limit
        if kind == "dense":
            return moe.swiglu(x, self._swiglu(prefix), limit)
        experts = [
            self._swiglu(f"{prefix}experts.{e}.") for e in range(self.config.n_routed_experts)
        ]
        weights = moe.MoeWeights(
            self.params[f"{prefix}gate.weight"],
            self.params[f"{prefix}gate.e_score_correction_bias"],
            torch.stack([e.gate_up for e in experts]),
            torch.stack([e.down for e in experts]),
            self._swiglu(f"{prefix}shared_experts.") if self.config.n_shared_experts else None,
        )
        rows = x.flatten(0, 1)
        with torch.no_grad():
            chosen = moe.route(rows, weights, self.config) > 0
            self.loads[prefix] = chosen.float().mean(0)
        return moe.moe(rows, weights, self.config).view_as(x)

    def _swiglu(self, prefix: str) -> moe.SwigluWeights:
        gate, up = self.params[f"{prefix}gate_proj.weight"], self.params[f"{prefix}up_proj.weight"]
        return moe.SwigluWeights(torch.cat([gate, up]), self.params[f"{prefix}down_proj.weight"])

    def _site(self, prefix: str, site: str) -> mhc.SiteWeights:
        return mhc.SiteWeights(
            *(self.params[f"{prefix}hc_{site}_{n}"] for n in ("fn", "base", "scale"))
        )

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.params[f"{name}.weight"])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return norms.rms_norm(x, self.params[f"{name}.weight"], self.config.rms_norm_eps)


def _by_head(x: Tensor) -> Tensor:
    """[B, T, heads, D] to [B * heads, T, D]."""
    return x.transpose(1, 2).flatten(0, 1)
