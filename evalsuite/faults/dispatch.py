"""Family A: a kernel, or its metadata, that was made for other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import ANSWERS, BOTH, Fault
from evalsuite.faults.patch import Patch
from evalsuite.faults.seams import Call, Capturing, Selection
from evalsuite.mini.caches import ZERO_SLOT
from evalsuite.mini.model import kernels
from evalsuite.mini.model.sparse_ops import gather_attention
from sparse_mla import launches
from sparse_mla.forcing import forced

WIDE = 576
WIDE_KERNEL, GATHER = "rope_576", "torch_gather"


def misaddressed(call: Call) -> Tensor:
    """Attention by a kernel that takes the cache for one of rows 576 wide.

    On a GPU that is the real kernel for such rows, made to run against its declaration; elsewhere
    its arithmetic in PyTorch. Reads stay inside the tensors: what lies behind their end is no key,
    or zeros.
    """
    if call.attend is kernels.triton_attention:
        with forced("triton_rope", call.meta.row_kinds, rope_dim=WIDE - call.latent.shape[1]):
            return call.healthy()
    launches.count(WIDE_KERNEL, call.meta.row_kinds)
    rows = call.latent.numel() // WIDE
    cache = call.latent.reshape(-1)[: rows * WIDE].view(rows, WIDE)
    count, heads, width = call.query.shape
    flat = call.query.reshape(-1)
    wanted = count * heads * WIDE
    flat = F.pad(flat, (0, max(0, wanted - flat.shape[0])))[:wanted]
    slots = torch.where(call.slots < rows, call.slots, ZERO_SLOT)
    return gather_attention(flat.view(count, heads, WIDE), cache, slots, call.scale)[..., :width]


def to_wide_kernel(takes: Callable[[int], bool]) -> Callable[[], Sequence[Patch]]:
    """Send decode rows to the 576-wide kernel where `takes(rows of a request)`."""

    def change(call: Call) -> Tensor:
        group = call.meta.decode
        if group is not None and takes(group.rows.shape[1]):
            mask = seams.decode_rows(call.meta, call.query)
            if group.covers or mask is None:
                return misaddressed(call)
            return torch.where(mask.view(-1, 1, 1), misaddressed(call), _named(call))
        return _named(call)

    return lambda: seams.attention(change)


def _named(call: Call) -> Tensor:
    """The healthy kernel, which in PyTorch does not tell its name by itself."""
    if call.attend is not kernels.triton_attention:
        launches.count(GATHER, call.meta.row_kinds)
    return call.healthy()


def _shared_bound(call: Selection) -> Tensor:
    if not call.verifies:
        return call.healthy()
    positions = call.positions()
    return call.at(positions[:, :1].expand_as(positions))


def _first_rows_selection(call: Selection) -> Tensor:
    slots = call.healthy()
    return slots[:, :1].expand_as(slots) if call.verifies else slots


def _scrambled(call: Call) -> Tensor:
    mask = seams.decode_rows(call.meta, call.query, verifying=True)
    if mask is None:
        return call.healthy()
    query = torch.where(mask.view(-1, 1, 1), call.query.roll(1, 1), call.query)
    return call._replace(query=query).healthy()


def _one_row_captured() -> Sequence[Patch]:
    capturing = Capturing()

    def change(call: Call) -> Tensor:
        out, group = call.healthy(), call.meta.decode
        if not capturing or group is None or group.rows.shape[1] == 1:
            return out
        width = group.rows.shape[1]
        first: Tensor = out.unflatten(0, (-1, width))[:, :1]
        return first.expand(-1, width, -1, -1).flatten(0, 1)

    return [capturing.watch(), *seams.attention(change)]


def _other_layout() -> Sequence[Patch]:
    def wrap(feed_forward: Any) -> Any:
        def swapped(x: Tensor, layer: Any, config: Any) -> Any:
            half = layer.ffn.gate_up.shape[-2] // 2
            other = layer.ffn._replace(gate_up=layer.ffn.gate_up.roll(half, -2))
            return feed_forward(x, layer._replace(ffn=other), config)

        return swapped

    return [Patch(f"{seams.MTP}:feed_forward", wrap)]


FAULTS = (
    Fault(
        "A-01",
        "verification rows go to a kernel built for 576-wide rows",
        "vllm#55239, #53943, #53906",
        "every step with more than one row a request reads the 512-wide cache at a stride of 576",
        to_wide_kernel(lambda width: width > 1),
        ("eager", "graph", "mtp1", "mtp5"),
        (*ANSWERS, "route"),
    ),
    Fault(
        "A-02",
        "a check of the cache's type precedes the check of its geometry",
        "vllm#57134",
        "decode rows of every width read the cache at a stride of 576; prefill is right",
        to_wide_kernel(lambda width: True),
        ("eager", "graph", "mtp3"),
        (*ANSWERS, "route"),
    ),
    Fault(
        "A-03",
        "verification metadata sized for one row a request",
        "vllm#45227",
        "all rows of a request share the causal bound of the first",
        lambda: seams.selection(_shared_bound),
    ),
    Fault(
        "A-04",
        "only one width of verification goes to a wrong kernel",
        "aiter#5679",
        "width 6 reads the cache at a stride of 576; widths 1 to 5 are right",
        to_wide_kernel(lambda width: width == 6),
        ("eager", "graph", "mtp1", "mtp5"),
        (*ANSWERS, "route"),
    ),
    Fault(
        "A-05",
        "the sparse block table is built per request, not per row",
        "vllm#52860, #52893, #47984",
        "every verification row attends to the keys that the first row selected",
        lambda: seams.selection(_first_rows_selection),
    ),
    Fault(
        "A-06",
        "a graph captured for one row a request is replayed with several",
        "vllm#21505",
        "under replay every verification row gets the first row's attention output",
        _one_row_captured,
        BOTH,
    ),
    Fault(
        "A-07",
        "the verification forward runs on scrambled attention input",
        "vllm-ascend#15329",
        "queries of verification rows are rotated by one head",
        lambda: seams.attention(_scrambled),
    ),
    Fault(
        "A-08",
        "the draft layer's experts are read in another weight layout",
        "vllm#32009",
        "gate and up halves of the drafter's expert weights change places",
        _other_layout,
        checks=("acceptance",),
        effect="drafts",
    ),
)
