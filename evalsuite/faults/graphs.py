"""Family F: what is wrong only under graph replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import BOTH, Fault
from evalsuite.faults.patch import Patch
from evalsuite.faults.seams import Call, Capturing, Filling, Selection
from evalsuite.faults.stress import SCARCE, Stress
from evalsuite.mini.caches import ZERO_SLOT


def _dead_address() -> Sequence[Patch]:
    capturing, kept = Capturing(), dict[tuple[int, ...], Tensor]()

    def wrap(metadata: Any) -> Any:
        def frozen(inputs: Any, block: int, kpool: int) -> Any:
            meta = metadata(inputs, block, kpool)
            if not capturing:
                return meta
            shape = tuple(inputs.tokens.shape)
            # A step is run once before it is captured: what it computed then stays in the graph.
            if shape not in kept:
                kept[shape] = meta.slot_mapping.clone()
            return meta._replace(slot_mapping=kept[shape])

        return frozen

    return [capturing.watch(), Patch(f"{seams.CAPTURED}:decode_metadata", wrap)]


def _captured_attention(change: Callable[[Call], Tensor]) -> Callable[[], Sequence[Patch]]:
    def patches() -> Sequence[Patch]:
        capturing = Capturing()

        def chosen(call: Call) -> Tensor:
            return change(call) if capturing else call.healthy()

        return [capturing.watch(), *seams.attention(chosen)]

    return patches


def _overlapping(call: Call) -> Tensor:
    out = call.healthy()
    half = out.shape[0] // 2
    return torch.cat([out[: out.shape[0] - half], out[:half]]) if half else out


def _frozen_length() -> Sequence[Patch]:
    capturing = Capturing()

    def change(call: Selection) -> Tensor:
        slots = call.healthy()
        if not capturing or not call.is_decode:
            return slots
        tables = call.meta.block_tables
        known = 5 * tables.shape[1] // 8
        column = torch.arange(tables.shape[1], device=tables.device)
        cut = tables.masked_fill(column >= known, 0)
        short = call.healthy(meta=call.meta._replace(block_tables=cut))
        short = torch.where(short < call.block_size, ZERO_SLOT, short)
        history = call.config.index_topk
        return torch.cat([short[:, :, :history], slots[:, :, history:]], -1)

    return [capturing.watch(), *seams.selection(change)]


def _padding_counted() -> Sequence[Patch]:
    def wrap(replay: Any) -> Any:
        def counted(self: Any, decode: Any, bounds: Any) -> Any:
            out = replay(self, decode, bounds)
            for _ in range(self.captured(len(decode)).batch - len(decode)):
                self.counters.count_verified(self.options.k, 0)
            return out

        return counted

    return [Patch(f"{seams.RUNNER}:ModelRunner._replay", wrap)]


def _other_sizes_drafts() -> Sequence[Patch]:
    def wrap(replay: Any) -> Any:
        def other(self: Any, specs: Any, tables: Any, fused: bool) -> Any:
            found = [
                key for key in self.graphs.replays if key[0] == "drafts" and key[1] != self.batch
            ]
            if not found:
                return replay(self, specs, tables, fused)
            self.graphs.replay(found[0])
            return self.outputs.drafts

        return other

    return [Patch(f"{seams.CAPTURED}:CapturedSize.replay_drafts", wrap)]


def _exact_size(fill: Filling) -> None:
    if fill.used == fill.batch and fill.batch > 1:
        fill.host.block_tables[-1] = fill.host.block_tables[0]


def _same_prefix(fill: Filling) -> None:
    first = fill.host.block_tables[: fill.used, 0]
    shared = (first == first[0]).nonzero()[0]
    fill.host.state_slots[shared] = fill.host.state_slots[0]


def _aliased(fill: Filling) -> None:
    if fill.used > 2:
        fill.host.accepted[2 : fill.used] = fill.host.accepted[0]


def _stale_rows() -> Sequence[Patch]:
    before: dict[int, dict[str, Any]] = {}
    names = ("tokens", "width", "context_lens", "block_tables")

    def change(fill: Filling) -> None:
        known = before.get(id(fill.inputs))
        if known is not None and fill.used < fill.batch:
            for name in names:
                getattr(fill.host, name)[fill.used :] = known[name][fill.used :]
        before[id(fill.inputs)] = {name: getattr(fill.host, name).copy() for name in names}

    return seams.static_inputs(change)


FAULTS = (
    Fault(
        "F-01",
        "metadata is a temporary: the graph keeps a dead address",
        "GLM-5.3 recipe PR#79, item C",
        "replays write to the slots that were computed while capturing",
        _dead_address,
        BOTH,
    ),
    Fault(
        "F-02",
        "scratch inside a graph is overwritten by another segment",
        "sglang#30805",
        "under replay the second half of a batch gets the first half's attention output",
        _captured_attention(_overlapping),
        BOTH,
    ),
    Fault(
        "F-03",
        "the number of blocks is frozen at capture",
        "sglang#9675",
        "replays select no history behind five eighths of the longest request",
        _frozen_length,
        BOTH,
    ),
    Fault(
        "F-04",
        "results of padded requests are counted",
        "TRT-LLM#5058",
        "every padded request of a replay counts as a draft of which nothing held",
        _padding_counted,
        ("eager", "graph", "mtp3"),
        ("acceptance",),
        "evidence",
    ),
    Fault(
        "F-05",
        "the wrapper's key is not the captured shape",
        "local-inference-lab/vllm#398",
        "the drafts of one captured size are replayed behind the target step of another",
        _other_sizes_drafts,
        ("eager", "mtp3"),
        ("acceptance",),
        "drafts",
        Stress(options=(("graph_batches", [4, 16]),)),
    ),
    Fault(
        "F-06",
        "exact sizes near the largest captured one",
        "TRT-LLM#15639, PR#15940",
        "where a batch fills the graph, its last request has the block table of the first",
        lambda: seams.static_inputs(_exact_size),
        BOTH,
        # Larger batches are replayed in pieces of this size, nearly all of them full.
        stress=Stress(options=(("graph_batches", [16]),)),
    ),
    Fault(
        "F-07",
        "requests that share a prefix collide in a static buffer",
        "vllm#41331",
        "requests of a replay with the same first block share one recurrent state",
        lambda: seams.static_inputs(_same_prefix),
        BOTH,
    ),
    Fault(
        "F-08",
        "buffers alias where a batch has more than two requests",
        "TRT-LLM#4037",
        "the third request of a replay and later ones take the first one's accepted count",
        lambda: seams.static_inputs(_aliased),
        BOTH,
    ),
    Fault(
        "F-09",
        "padded rows keep the slots of the step before",
        "generic",
        "padded requests of a replay run their rows of the last step again, into live pages",
        _stale_rows,
        BOTH,
        stress=SCARCE,
    ),
)
