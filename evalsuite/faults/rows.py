"""Family B: rows, positions and padding that are out of step with each other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import BOTH, Fault
from evalsuite.faults.patch import Patch
from evalsuite.faults.seams import Filling, Selection
from evalsuite.faults.stress import Stress
from evalsuite.mini.caches import ZERO_SLOT


def _flat_lengths(call: Selection) -> Tensor:
    if not call.verifies:
        return call.healthy()
    rows = call.group.rows
    count, width = rows.shape
    flat = torch.arange(count * width, device=rows.device).view(count, width)
    return call.at(call.meta.positions[flat.clamp(max=call.meta.positions.shape[0] - 1)])


def _padding_joins_the_last(fill: Filling) -> None:
    if fill.used < fill.batch:
        fill.host.state_slots[fill.used :] = fill.host.state_slots[fill.used - 1]


def _tables_not_padded(fill: Filling) -> None:
    if fill.used < fill.batch:
        fill.host.block_tables[:] = fill.host.block_tables[[*range(1, fill.batch), 0]]


def _neighbours_gates() -> list[Patch]:
    """Decay and write strength of the row behind, in steps that also prefill."""

    def wrap(decode: Any) -> Any:
        def changed(rows: Any, weights: Any, cache: Any, meta: Any, group: Any, config: Any) -> Any:
            if meta.prefill is not None and group.rows.shape[1] > 1:
                rows = rows._replace(decay=rows.decay.roll(1, 0), beta=rows.beta.roll(1, 0))
            return decode(rows, weights, cache, meta, group, config)

        return changed

    return [Patch(f"{seams.LINEAR}:_decode", wrap)]


def _first_row_short(call: Selection) -> Tensor:
    if not call.verifies:
        return call.healthy()
    positions = call.positions()
    first = (positions[:, :1] - 1).clamp(min=0)
    return call.at(torch.cat([first, positions[:, 1:]], 1))


def _history_of_row_0(call: Selection) -> Tensor:
    slots = call.healthy()
    if call.is_decode:
        return slots
    history = call.config.index_topk
    first = slots[:, :1, :history].expand(-1, slots.shape[1], -1)
    return torch.cat([first, slots[:, :, history:]], -1)


def _column_short(call: Selection) -> Tensor:
    if not call.verifies:
        return call.healthy()
    tables = call.meta.block_tables
    # The block that a request's newest token is in lies behind the table's end.
    last = call.last() // call.block_size
    column = torch.arange(tables.shape[1], device=tables.device)
    kept = tables[call.group.requests].masked_fill(column >= last, 0)
    whole = tables.clone()
    whole[call.group.requests] = kept
    slots = call.healthy(meta=call.meta._replace(block_tables=whole))
    return torch.where(slots < call.block_size, ZERO_SLOT, slots)


def _sees_the_next(call: Selection) -> Tensor:
    if not call.verifies:
        return call.healthy()
    return call.at(torch.minimum(call.positions() + 1, call.last()))


FAULTS = (
    Fault(
        "B-01",
        "lengths of rows taken as request times width in a ragged batch",
        "vLLM common/sparse_indexer.py",
        "a verification row takes its position from row b x width + t of the flat batch",
        lambda: seams.selection(_flat_lengths),
        stress=Stress(ragged=True),
    ),
    Fault(
        "B-02",
        "padding rows are fed to the recurrent kernel",
        "sglang#37585",
        "padded requests of a captured step write into the last request's recurrent state",
        lambda: seams.static_inputs(_padding_joins_the_last),
        BOTH,
    ),
    Fault(
        "B-03",
        "queries are padded, block tables are not",
        "sglang#17076",
        "where a step is padded, block tables stand one request off from the rows",
        lambda: seams.static_inputs(_tables_not_padded),
        BOTH,
    ),
    Fault(
        "B-04",
        "gate inputs not gathered with the row index of speculation",
        "vllm#51812 via #54928",
        "in steps that also prefill, verification rows take decay and write strength of the row "
        "behind them",
        _neighbours_gates,
        # Prompts in small pieces, so that most steps prefill beside requests that verify.
        stress=Stress(options=(("max_num_batched_tokens", 512),)),
    ),
    Fault(
        "B-05",
        "bounds of rows are off by one for the first verification row",
        "vLLM indexer",
        "the first row of a request selects among one token less",
        lambda: seams.selection(_first_row_short),
    ),
    Fault(
        "B-06",
        "all rows of a prefill inherit the history of the first",
        "vLLM kpool_compress.py",
        "prefill rows attend to the first row's selection and their own tail",
        lambda: seams.selection(_history_of_row_0),
    ),
    Fault(
        "B-07",
        "the expanded block table is a column short",
        "vllm#43970",
        "verification rows find no key in the block of their newest token",
        lambda: seams.selection(_column_short),
    ),
    Fault(
        "B-08",
        "a verification row sees the draft behind it",
        "generic",
        "row i selects among the tokens up to i + 1",
        lambda: seams.selection(_sees_the_next),
    ),
)
