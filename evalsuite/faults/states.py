"""Family D: the recurrent state, its copies for prefixes, and what a rejection takes back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import ANSWERS, BOTH, Fault
from evalsuite.faults.patch import Patch
from evalsuite.faults.stress import SCARCE, Stress
from evalsuite.mini.metadata import Group, StepMetadata


def _kept_too_late() -> list[Patch]:
    """In sessions that draft, a kept state has run on to the end of the chunk."""

    def wrap(keep: Any) -> Any:
        def changed(
            cache: Any, plan: Any, window: Tensor, result: Any, heads: int, taps: int
        ) -> None:
            if cache.state.shape[1] > 1:
                result = result._replace(states=result.final.unsqueeze(1).expand_as(result.states))
            keep(cache, plan, window, result, heads, taps)

        return changed

    return [Patch(f"{seams.LINEAR}:_keep", wrap)]


def _restored(change: Any) -> list[Patch]:
    """Change what a prefix hit restores: change(snapshot) in sessions that draft."""

    def wrap(restore: Any) -> Any:
        def changed(self: Any) -> None:
            if self.options.k > 0:
                waiting = self.scheduler.restores
                self.scheduler.restores = [(s, change(kept)) for s, kept in waiting]
            restore(self)

        return changed

    return [Patch(f"{seams.ENGINE}:Session._restore", wrap)]


def _by_batch_row(meta: StepMetadata, group: Group, cache: Any) -> StepMetadata:
    if group.rows.shape[1] == 1:
        return meta
    slots = torch.arange(meta.state_slots.shape[0], device=meta.state_slots.device) + 1
    return meta._replace(state_slots=slots)


def _padded_tail() -> list[Patch]:
    """A prompt's last row runs again where the chunk ends one row behind a boundary."""

    def wrap(prefill: Any) -> Any:
        def changed(rows: Any, weights: Any, cache: Any, meta: Any, group: Any, config: Any) -> Any:
            out = prefill(rows, weights, cache, meta, group, config)
            lengths = group.valid.sum(1)
            tail = ((lengths % 16 == 1) & (lengths > 1)).nonzero().flatten()
            if cache.state.shape[1] > 1 and len(tail):
                last = group.rows[tail].gather(1, lengths[tail].unsqueeze(1) - 1)
                again = Group(
                    last, torch.ones_like(last, dtype=torch.bool), group.requests[tail], False
                )
                prefill(rows, weights, cache, meta._replace(snapshots=None), again, config)
            return out

        return changed

    return [Patch(f"{seams.LINEAR}:_prefill", wrap)]


def _stale_padding() -> list[Patch]:
    before: dict[int, Any] = {}

    def change(fill: seams.Filling) -> None:
        known = before.get(id(fill.inputs))
        if known is not None and fill.used < fill.batch:
            fill.host.state_slots[fill.used :] = known[0][fill.used :]
            fill.host.accepted[fill.used :] = known[1][fill.used :]
        before[id(fill.inputs)] = (fill.host.state_slots.copy(), fill.host.accepted.copy())

    return seams.static_inputs(change)


def _one_too_far(meta: StepMetadata, group: Group, cache: Any) -> StepMetadata:
    # A request without accepted drafts may have been prefilled just now, with one state only.
    last = cache.state.shape[1] - 1
    further = (meta.accepted + 1).clamp(max=last)
    return meta._replace(accepted=torch.where(meta.accepted > 0, further, meta.accepted))


def _never_rolled_back(meta: StepMetadata, group: Group, cache: Any) -> StepMetadata:
    last = torch.full_like(meta.accepted, cache.state.shape[1] - 1)
    return meta._replace(accepted=torch.where(meta.accepted > 0, last, meta.accepted))


FAULTS = (
    Fault(
        "D-01",
        "the state kept with a prefix includes tokens behind it",
        "vllm#43559, #53912, #57128",
        "in sessions that draft, the state kept at a block's end has run to the chunk's end",
        _kept_too_late,
    ),
    Fault(
        "D-02",
        "the index of a kept state is computed with the wrong block size",
        "vllm#55600, #55601",
        "in sessions that draft, a prefix hit restores the state at half the index",
        lambda: _restored(lambda kept: kept if kept < 0 else kept // 2),
    ),
    Fault(
        "D-03",
        "the state table of speculation is indexed by batch row",
        "vllm#55506",
        "verification rows take the state of the request slot that their row's number names",
        lambda: seams.decode_states(_by_batch_row),
    ),
    Fault(
        "D-04",
        "padding of a prompt's tail advances the state",
        "vllm#55178",
        "in sessions that draft, a prompt that ends one token behind a boundary runs it twice",
        _padded_tail,
    ),
    Fault(
        "D-05",
        "padded rows of a graph keep the states of an earlier step",
        "vllm-ascend#15461",
        "padded requests of a captured step write into the states they had a step ago",
        _stale_padding,
        BOTH,
        stress=SCARCE,
    ),
    Fault(
        "D-06",
        "rows of a cached prefix are restored, its state is not",
        "vllm#53505, sglang#38031",
        "in sessions that draft, a prefix hit starts from an empty state",
        lambda: _restored(lambda kept: -1),
    ),
    Fault(
        "D-07",
        "the accepted count is off by one when a state is chosen",
        "vllm#39273",
        "after a rejection the state includes one rejected draft; acceptance stays healthy",
        lambda: seams.decode_states(_one_too_far),
        checks=ANSWERS,
    ),
    Fault(
        "D-08",
        "the recurrent state is not rolled back after a rejection",
        "generic",
        "where a draft held, verification goes on from the state behind the last draft",
        lambda: seams.decode_states(_never_rolled_back),
        stress=Stress(rejections=True),
    ),
)
