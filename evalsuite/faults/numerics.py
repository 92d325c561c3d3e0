"""Family G: numbers that are nearly right, and memory that nobody wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from evalsuite.faults import seams
from evalsuite.faults.fault import Fault
from evalsuite.faults.patch import Patch
from evalsuite.faults.seams import Call
from evalsuite.mini.caches import ZERO_SLOT
from evalsuite.mini.model.sparse_ops import gather_attention

RARE = 0.01
TILE = 32


def perturbed(call: Call, share: float, size: float) -> Tensor:
    """Attention with a random `share` of its rows off by `size` of their own magnitude."""
    out = call.healthy()
    hit = torch.rand(out.shape[0], 1, 1, device=out.device) < share
    noise = torch.randn_like(out) * out.abs().mean((1, 2), keepdim=True) * size
    return torch.where(hit, out + noise, out)


def _unwritten() -> Sequence[Patch]:
    """On every device by gathering, which multiplies: the Triton kernels never read that slot."""

    def wrap(allocate: Any) -> Any:
        def poisoned(*arguments: Any) -> Any:
            caches = allocate(*arguments)
            for cache in (*caches.layers, caches.mtp):
                if hasattr(cache, "latent"):
                    cache.latent[ZERO_SLOT] = float("nan")
            return caches

        return poisoned

    return [Patch(f"{seams.CACHES}:allocate", wrap), *seams.attention(_gathered)]


def _gathered(call: Call) -> Tensor:
    return gather_attention(call.query, call.latent, call.slots, call.scale)


def _power_of_two(call: Call) -> Tensor:
    return call._replace(scale=2.0 ** round(math.log2(call.scale))).healthy()


def _scale_dropped(call: Call) -> Tensor:
    return call._replace(latent=call.latent * 0.5).healthy()


def _empty_rows(call: Call) -> Tensor:
    empty = (call.slots == ZERO_SLOT).all(1)
    return call.healthy().masked_fill(empty.view(-1, 1, 1), float("nan"))


def _maximum_reset(call: Call) -> Tensor:
    """A tile without keys resets the running maximum to 0, and each of its masked keys, being the
    maximum itself, weighs exp(0)."""
    out, absent = call.healthy(), call.slots == ZERO_SLOT
    tiles = F.pad(absent, (0, -absent.shape[1] % TILE), value=True).unflatten(1, (-1, TILE))
    masked = TILE * tiles.all(-1).sum(-1).view(-1, 1, 1)
    scores = torch.matmul(call.query, call.latent[call.slots].transpose(1, 2)).float() * call.scale
    scores = scores.masked_fill(absent.unsqueeze(1), float("-inf"))
    negative = scores.amax(-1, keepdim=True) < 0
    total = scores.exp().sum(-1, keepdim=True)
    kept = total / (total + masked)
    return torch.where(negative, out * kept.to(out.dtype), out)


FAULTS = (
    Fault(
        "G-01",
        "identical inputs now and then give another output",
        "aiter#4638",
        "one row of attention in a hundred is off by its own magnitude",
        lambda: seams.attention(lambda call: perturbed(call, RARE, 1.0)),
    ),
    Fault(
        "G-03",
        "NaN in rows that nobody wrote, multiplied by a weight of zero",
        "aiter#4667",
        "the slot that stands for no key holds NaN",
        _unwritten,
        checks=("completeness", "accuracy", "degeneration"),
    ),
    Fault(
        "G-04",
        "a scale is forced to a power of two",
        "FlashMLA#184",
        "the softmax scale 0.177 becomes 0.25",
        lambda: seams.attention(_power_of_two),
    ),
    Fault(
        "G-05",
        "the scale of the cache is dropped",
        "sglang#22671",
        "latents are read at half their size",
        lambda: seams.attention(_scale_dropped),
    ),
    Fault(
        "G-06",
        "rows without any key give NaN",
        "sglang#32192",
        "attention of a row without keys is NaN",
        lambda: seams.attention(_empty_rows),
        effect="nothing",
        blind="only padded rows have no key here, and what they give is thrown away",
    ),
    Fault(
        "G-07",
        "the running maximum starts anew at 0 on a tile without keys",
        "aiter#4638, comment",
        "in rows with negative scores only, each key of an empty tile of 32 weighs one",
        lambda: seams.attention(_maximum_reset),
        blind="it moves mean margins by 1e-4, and a healthy run in bfloat16 with another number of "
        "requests at once moves them by 2e-3",
        blind_on="bfloat16",
    ),
)
