"""How two results of an operation are compared: as FlashMLA's tests do it.

First the patterns of NaN and infinities, which have to be the same; then each element, by
absolute or relative tolerance; then the cosine difference of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tolerance:
    """An element is right within `absolute` or `relative`; the whole within `cosine`."""

    absolute: float
    relative: float
    cosine: float


# What FlashMLA's tests allow in BF16, for queries and values of size 0.1.
FLASH_MLA = Tolerance(1e-3, 2.01 / 128, 5e-6)
# For values of size 1. A result is linear in the values, so FLASH_MLA's absolute figure would be
# 1e-2 here; rounding the weights to BF16 alone may cost 2^-9 sum(p |v|) = 1.6e-3, which is taken.
RESULT = {
    torch.bfloat16: Tolerance(1.6e-3, 2.01 / 128, 5e-6),
    torch.float16: Tolerance(1e-3, 4e-3, 1e-6),
    torch.float32: Tolerance(1e-5, 1e-5, 1e-10),
}
LSE = Tolerance(2e-5, 8.01 / 65536, 1e-9)


def cosine_difference(found: Tensor, wanted: Tensor) -> float:
    """1 - 2 <x, y> / (<x, x> + <y, y>): 0 for equal tensors, and for two tensors of zeros."""
    x, y = found.double(), wanted.double()
    size = float((x * x + y * y).sum())
    return 1.0 - 2.0 * float((x * y).sum()) / size if size else 0.0


def difference(found: Tensor, wanted: Tensor, tolerance: Tolerance) -> str | None:
    """What is wrong with `found`, naming the worst element; None where it is right."""
    if found.shape != wanted.shape:
        return f"shape {tuple(found.shape)}, expected {tuple(wanted.shape)}"
    x, y = found.double(), wanted.double()
    for name, pattern in (("NaN", torch.isnan), ("+inf", torch.isposinf), ("-inf", torch.isneginf)):
        wrong = pattern(x) != pattern(y)
        if wrong.any():
            at = _place(wrong.nonzero()[0])
            return f"{name} at other places ({int(wrong.sum())}), first {at}: {_both(x, y, at)}"
    finite = torch.isfinite(y)
    x, y = torch.where(finite, x, 0.0), torch.where(finite, y, 0.0)
    error = (x - y).abs()
    wrong = (error > tolerance.absolute) & (error > tolerance.relative * y.abs())
    if wrong.any():
        at = _place((error * wrong).flatten().argmax(), error.shape)
        return f"{int(wrong.sum())} of {wrong.numel()} elements, worst at {at}: {_both(x, y, at)}"
    cosine = cosine_difference(x, y)
    if cosine > tolerance.cosine:
        return f"cosine difference {cosine:.2e} over {tolerance.cosine:.2e}"
    return None


def _place(at: Tensor, shape: torch.Size | None = None) -> tuple[int, ...]:
    if shape is None:
        return tuple(int(i) for i in at)
    return tuple(int(i) for i in torch.unravel_index(at, shape))


def _both(found: Tensor, wanted: Tensor, at: tuple[int, ...]) -> str:
    return f"{float(found[at]):.6g}, expected {float(wanted[at]):.6g}"
