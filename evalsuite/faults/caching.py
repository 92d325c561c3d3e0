"""Family C: the indexer, its pools and rings, and how caches are addressed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import Fault
from evalsuite.faults.patch import Patch
from evalsuite.faults.seams import Call, Selection
from evalsuite.faults.stress import Stress
from evalsuite.mini.caches import TRASH_SLOT, ZERO_SLOT
from evalsuite.mini.metadata import Group, StepMetadata

# Elements behind which a row's address wraps, as 2 ** 31 would on a cache of many gigabytes.
WRAP = 2**20


def _ring_by_block(meta: StepMetadata, group: Group, cache: Any) -> tuple[StepMetadata, Group]:
    return meta._replace(positions=meta.positions // 16), group


def _pool_patches(change: Any) -> list[Patch]:
    return [*seams.stored_pools(change, "decode"), *seams.stored_pools(change, "prefill")]


def _pools_in_pages(meta: StepMetadata, group: Group, cache: Any) -> tuple[StepMetadata, Group]:
    pools = meta.pool_mapping
    return meta._replace(pool_mapping=torch.where(pools > 1, pools // 5 + 2, pools)), group


def _half_a_page(meta: StepMetadata, group: Group, cache: Any) -> tuple[StepMetadata, Group]:
    pools, page = meta.pool_mapping, 4
    packed = pools // page * (page // 2) + pools % page
    return meta._replace(pool_mapping=torch.where(pools > 1, packed.clamp(min=2), pools)), group


def _every_fourth(meta: StepMetadata, group: Group, cache: Any) -> tuple[StepMetadata, Group]:
    completes = meta.pool_mapping[group.rows] != TRASH_SLOT
    return meta, group._replace(valid=group.valid & completes)


def _seeds_into_pages() -> list[Patch]:
    """A prefill's tail is also written at a dense stride over the pages of the pool cache."""

    def wrap(update: Any) -> Any:
        def changed(
            entries: Tensor, cache: Any, weights: Any, meta: Any, group: Any, config: Any
        ) -> None:
            update(entries, cache, weights, meta, group, config)
            owner = meta.state_slots[group.requests]
            last = group.rows.gather(1, group.valid.sum(1, keepdim=True) - 1).squeeze(1)
            page = (owner * 7 + 2) % cache.pool.shape[0]
            cache.pool[page.clamp(min=2)] = entries[last, : cache.pool.shape[1]]

        return changed

    return [Patch(f"{seams.INDEXER}:_update_prefill", wrap)]


def _one_pool_ring() -> list[Patch]:
    return [Patch(f"{seams.CACHES}:ring_size", lambda size: lambda kpool, drafts: kpool)]


def _stale_columns(call: Selection) -> Tensor:
    slots = call.healthy()
    # What another request left in the buffer: its newest slot, which means nothing here.
    stale = slots.flatten(1).amax(1).roll(1, 0).view(-1, 1, 1)
    return torch.where((slots == ZERO_SLOT) & call.group.valid.unsqueeze(-1), stale, slots)


def _wrapped(call: Call) -> Tensor:
    rows = WRAP // call.latent.shape[1]
    return call._replace(slots=call.slots % rows).healthy()


def _unwritten_workspace(call: Selection) -> Tensor:
    slots = call.healthy()
    if call.is_decode:
        return slots
    first = call.positions()[:, :1, None]
    table = call.meta.block_tables[call.group.requests]
    blocks = (first.squeeze(-1) + call.block_size - 1) // call.block_size
    column = torch.arange(table.shape[1], device=table.device)
    before = torch.where(column < blocks, table, -1)
    earlier = (slots.flatten(1).unsqueeze(-1) // call.block_size == before.unsqueeze(1)).any(-1)
    return torch.where(earlier.view_as(slots), ZERO_SLOT, slots)


def _scores(change: Any) -> list[Patch]:
    def wrap(scores: Any) -> Any:
        return lambda *arguments: change(scores(*arguments))

    return [Patch(f"{seams.INDEXER}:pool_scores", wrap)]


def _neighbouring_scale(scores: Tensor) -> Tensor:
    page = torch.arange(scores.shape[-1], device=scores.device) // 4
    scale = 1.0 + (page * 7 % 5).to(scores.dtype)
    return scores / scale * scale.roll(4)


def _mirrored_pages(scores: Tensor) -> Tensor:
    mirrored: Tensor = scores.unflatten(-1, (-1, 4)).flip(-1).flatten(-2)
    return mirrored


def _without_tail(call: Selection) -> Tensor:
    slots = call.healthy()
    history = call.config.index_topk
    return torch.cat([slots[:, :, :history], torch.full_like(slots[:, :, history:], ZERO_SLOT)], -1)


def _before_complete(call: Selection) -> Tensor:
    if not call.verifies:
        return call.healthy()
    kpool, positions = call.config.index_kpool, call.positions()
    end = positions // kpool * kpool + kpool - 1
    return call.at(torch.where(end <= call.last(), end, positions))


def _gates_left_out() -> list[Patch]:
    def wrap(compress: Any) -> Any:
        def mean(entries: Tensor, ape: Tensor) -> Tensor:
            key, gate = entries.chunk(2, -1)
            result: Tensor = compress(torch.cat([key, torch.zeros_like(gate)], -1), ape)
            return result

        return mean

    return [Patch(f"{seams.INDEXER}:compress", wrap)]


FAULTS = (
    Fault(
        "C-01",
        "the tail ring is addressed by position // block",
        "vllm#53906, #53982, #54296, #57317, #57227",
        "ring entries go to and come from position // 16 instead of position modulo the ring",
        lambda: _pool_patches(_ring_by_block),
    ),
    Fault(
        "C-02",
        "tail seeds are written with a dense stride into shared pages",
        "vllm#57477 (in vLLM 0.30.0)",
        "each prefill also writes its last entry over a page of the pool cache",
        _seeds_into_pages,
    ),
    Fault(
        "C-03",
        "slots in page units, tables in units of the manager's blocks",
        "vllm#54359, #57536, #56380",
        "five pools share one slot of the pool cache",
        lambda: _pool_patches(_pools_in_pages),
    ),
    Fault(
        "C-04",
        "compressed slots divide by half the entries of a page",
        "Lvllm#109",
        "the writer takes a page for one of 2 pools, the reader of 4",
        lambda: _pool_patches(_half_a_page),
    ),
    Fault(
        "C-05",
        "the tail ring has one pool's slots",
        "vLLM source (in vLLM 0.30.0)",
        "drafts behind a rejected draft overwrite the keys that its pool needs",
        _one_pool_ring,
        stress=Stress(rejections=True),
    ),
    Fault(
        "C-06",
        "the ring is written only where a pool completes",
        "vLLM kpool_compress.py",
        "decode stores every fourth token in the ring",
        lambda: seams.stored_pools(_every_fourth, "decode"),
    ),
    Fault(
        "C-07",
        "the buffer of selected pools does not start as empty",
        "vllm#55201",
        "columns without a key name a slot of another request",
        lambda: seams.selection(_stale_columns),
    ),
    Fault(
        "C-08",
        "a row's address overflows",
        "vllm#54019",
        "addresses wrap at 2 ** 20 elements, as int32 does on a cache of many gigabytes",
        lambda: seams.attention(_wrapped),
    ),
    Fault(
        "C-09",
        "later chunks of a prompt read a workspace that was not written",
        "vllm#40018",
        "rows of a chunk find none of the keys that earlier chunks stored",
        lambda: seams.selection(_unwritten_workspace),
    ),
    Fault(
        "C-10",
        "index scores of a page have the scale of its neighbour",
        "vllm#50455",
        "scores of 4 pools at a time are off by factors of 1/5 to 5",
        lambda: _scores(_neighbouring_scale),
    ),
    Fault(
        "C-11",
        "writer and reader disagree on the order inside a page",
        "sglang#39341",
        "scores of the 4 pools of a page are mirrored",
        lambda: _scores(_mirrored_pages),
    ),
    Fault(
        "C-13",
        "every index score is twice what it should be",
        "ATOM#2051 review",
        "scores are doubled",
        lambda: _scores(lambda scores: scores * 2.0),
        effect="nothing",
        blind="a common factor leaves the order of scores, and so every selected key, as it was; "
        "a test of the scores themselves sees it",
    ),
    Fault(
        "C-14",
        "the tail is dropped instead of the weakest history",
        "ROCm fit_kpool",
        "no row attends to the tokens of its incomplete pool",
        lambda: seams.selection(_without_tail),
    ),
    Fault(
        "C-15",
        "a pool can be selected before its last token is visible",
        "wait-for-completion rule",
        "a verification row sees the drafts behind it in its own pool",
        lambda: seams.selection(_before_complete),
    ),
    Fault(
        "C-16",
        "the gate scores of the pools are left out",
        "vllm#53943",
        "a pool's key is weighted by slot alone",
        _gates_left_out,
    ),
)
