"""Family E: the drafter alone is wrong. Answers stay right; acceptance falls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import Fault
from evalsuite.faults.patch import Patch, wherever
from evalsuite.faults.seams import Call
from evalsuite.faults.stress import Stress
from evalsuite.mini.caches import TRASH_SLOT
from evalsuite.mini.model.norms import rms_norm

ARMS = ("eager", "eager-mtp5")
CHECKS = ("acceptance",)


def _normed_twice(step: Any, model: Any, state: Any, *rest: Any) -> Any:
    norm = model.weights.mtp.head_norm
    again = rms_norm(state.hidden, norm, model.config.rms_norm_eps)
    return step(model, state._replace(hidden=again), *rest)


def _no_head() -> Sequence[Patch]:
    def wrap(logits: Any) -> Any:
        return lambda model, hidden: torch.full_like(logits(model, hidden), float("nan"))

    return [Patch(f"{seams.SPECULATE}:logits", wrap)]


def _swapped_halves(layer: Any, model: Any, *rest: Any) -> Any:
    mtp = model.weights.mtp
    swapped = mtp.eh_proj.roll(mtp.eh_proj.shape[1] // 2, 1)
    weights = model.weights._replace(mtp=mtp._replace(eh_proj=swapped))
    return layer(replace(model, weights=weights), *rest)


def _one_buffer() -> Sequence[Patch]:
    """All steps run with the lengths of the last."""

    def wrap(draft_all: Any) -> Any:
        def shared(model: Any, state: Any, cache: Any, block: int, k: int, share: bool) -> Tensor:
            from evalsuite.mini import speculate

            drafts, last = [state.token], state.inputs.context_lens + k - 2
            for _ in range(k - 1):
                state = state._replace(inputs=state.inputs._replace(context_lens=last))
                state = speculate.next_draft(model, state, cache, block, share)
                drafts.append(state.token)
            return torch.stack(drafts, 1)

        return shared

    return wherever("draft_all", (seams.RUNNER, seams.CAPTURED), wrap)


def _not_refreshed(step: Any, model: Any, state: Any, *rest: Any) -> Any:
    still = state.inputs._replace(context_lens=state.inputs.context_lens - 1)
    return step(model, state._replace(inputs=still), *rest)


def _coarse(layer: Any, model: Any, hidden: Tensor, *rest: Any) -> Any:
    # Of a mantissa in [0.5, 1) two bits are left, as in FP4's e2m1.
    mantissa, exponent = torch.frexp(hidden.float())
    rounded = torch.ldexp(torch.round(4 * mantissa) / 4, exponent)
    return layer(model, rounded.to(hidden.dtype), *rest)


def _drafter_meta(change: Any) -> list[Patch]:
    def wrap(sparse_attention: Any) -> Any:
        def changed(x: Any, weights: Any, cache: Any, meta: Any, *rest: Any) -> Any:
            return sparse_attention(x, weights, cache, change(meta, x), *rest)

        return changed

    return [Patch(seams.DRAFTER, wrap)]


def _dense() -> list[Patch]:
    def wrap(sparse_attention: Any) -> Any:
        def changed(
            x: Any, weights: Any, cache: Any, meta: Any, block: int, config: Any, *rest: Any
        ) -> Any:
            wide = replace(config, index_topk=8 * config.index_topk)
            return sparse_attention(x, weights, cache, meta, block, wide, *rest)

        return changed

    return [Patch(seams.DRAFTER, wrap)]


def _own_embedding(layer: Any, model: Any, hidden: Tensor, next_tokens: Tensor, *rest: Any) -> Any:
    embedded = F.embedding(next_tokens, model.weights.embed).to(hidden.dtype)
    return layer(model, embedded, next_tokens, *rest)


def _prompt_not_stored(meta: Any, x: Tensor) -> Any:
    if meta.prefill is None:
        return meta
    decode = seams.decode_rows(meta, x)
    kept = torch.zeros_like(meta.row_valid) if decode is None else decode
    return meta._replace(
        slot_mapping=torch.where(kept, meta.slot_mapping, TRASH_SLOT),
        pool_mapping=torch.where(kept, meta.pool_mapping, TRASH_SLOT),
    )


def _every_other(meta: Any, x: Tensor) -> Any:
    if meta.decode is None or meta.prefill is not None:
        return meta
    odd = meta.positions % 2 == 1
    return meta._replace(slot_mapping=torch.where(odd, TRASH_SLOT, meta.slot_mapping))


def _fewer_heads(call: Call) -> Tensor:
    out = call.healthy()
    half = out[:, : out.shape[1] // 2]
    return torch.cat([half, half], 1)


def _drafts_only(
    number: str,
    title: str,
    source: str,
    changes: str,
    patches: Any,
    stress: Stress | None = None,
) -> Fault:
    return Fault(
        f"E-{number}",
        title,
        source,
        changes,
        patches,
        ARMS,
        CHECKS,
        "drafts",
        stress or Stress(),
    )


FAULTS = (
    replace(
        _drafts_only(
            "01",
            "the recycled hidden state is normed twice",
            "vllm#46075, #47448, #45895; ATOM#1764, #1742",
            "later draft steps norm the hidden state that they recycle once more",
            lambda: seams.next_drafts(_normed_twice),
        ),
        blind="it moves accepted drafts by 0.1 points, which is where the gate begins to look: "
        "some proofs see it",
        blind_on="bfloat16",
    ),
    _drafts_only(
        "02",
        "the drafter's head was never loaded",
        "vllm#34385",
        "draft logits are NaN",
        _no_head,
    ),
    _drafts_only(
        "03",
        "the draft head is noise",
        "vllm#55605",
        "the halves of eh_proj's input change places",
        lambda: seams.drafting(_swapped_halves),
    ),
    _drafts_only(
        "04",
        "all draft steps share one metadata buffer",
        "vllm-ascend#10878",
        "every draft step runs with the lengths of the last",
        _one_buffer,
        Stress(options=(("share_slots", False),)),
    ),
    _drafts_only(
        "05",
        "metadata is not refreshed between draft steps",
        "vllm#41162",
        "every later draft step stands at the position of the first",
        lambda: seams.next_drafts(_not_refreshed),
    ),
    _drafts_only(
        "06",
        "draft and verification round differently",
        "TRT-LLM#15062",
        "the drafter's hidden input is rounded to 2 significant bits, as many as FP4 has",
        lambda: seams.drafting(_coarse),
    ),
    _drafts_only(
        "07",
        "the drafter is built without the sparse-attention configuration",
        "TRT-LLM#12032",
        "the drafter attends to every key, eight times its top-k",
        _dense,
    ),
    _drafts_only(
        "08",
        "the hidden snapshot is taken after the embedding overwrote it",
        "ds4#892",
        "the drafter gets the next token's embedding as hidden state",
        lambda: seams.drafting(_own_embedding),
    ),
    _drafts_only(
        "09",
        "the drafter's cache is not filled over the prompt",
        "ik_llama#1992",
        "the drafter stores nothing of a prompt",
        lambda: _drafter_meta(_prompt_not_stored),
    ),
    _drafts_only(
        "10",
        "the drafter's cache gets one entry for two accepted tokens",
        "omlx#2076",
        "the drafter stores no odd position while decoding",
        lambda: _drafter_meta(_every_other),
    ),
    _drafts_only(
        "11",
        "draft metadata built with another head count",
        "vllm#39775",
        "the second half of the drafter's heads repeats the first",
        lambda: seams.attention(_fewer_heads, base=False),
    ),
)
