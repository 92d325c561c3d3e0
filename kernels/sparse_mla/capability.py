"""What a kernel can compute, declared as data, and why it cannot compute the rest."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from sparse_mla.geometry import DECODE, MAX_WIDTH, PREFILL, Geometry, verify

ALL_ROW_KINDS = frozenset({PREFILL, DECODE, *(verify(width) for width in range(2, MAX_WIDTH + 1))})
Numbers = Set[int] | range


@dataclass(frozen=True)
class Capability:
    """The geometries of one kernel: any combination of the values listed here.

    `kv_lora_ranks`, `rope_dims`, `heads`: the values that it takes, as a set or a range.
    `topk_multiple`: the number of index columns must be a multiple of it. `graph_capture`: whether
    its launch can be captured into a CUDA graph (no host synchronisation, no host-side plan).
    """

    architectures: frozenset[str]
    cache_dtypes: frozenset[str]
    kv_lora_ranks: Numbers
    rope_dims: Numbers
    heads: Numbers
    row_kinds: frozenset[str] = ALL_ROW_KINDS
    topk_multiple: int = 1
    graph_capture: bool = True

    def refusals(self, geometry: Geometry, capture: bool) -> tuple[str, ...]:
        """Why this kernel cannot compute `geometry`; empty where it can."""
        found = [
            _outside("architecture", geometry.architecture, sorted(self.architectures)),
            _outside("cache dtype", geometry.cache_dtype, sorted(self.cache_dtypes)),
            _outside("kv_lora_rank", geometry.kv_lora_rank, self.kv_lora_ranks),
            _outside("rope width", geometry.rope_dim, self.rope_dims),
            _outside("heads", geometry.heads, self.heads),
        ]
        foreign = sorted(geometry.row_kinds - self.row_kinds)
        if foreign:
            found.append(
                f"row kind {', '.join(foreign)}: takes {', '.join(sorted(self.row_kinds))}"
            )
        if geometry.topk % self.topk_multiple:
            found.append(f"top-k {geometry.topk}: takes multiples of {self.topk_multiple}")
        if capture and not self.graph_capture:
            found.append("cannot be captured into a graph")
        return tuple(reason for reason in found if reason)


def _outside(what: str, value: str | int, allowed: Sequence[str] | Numbers) -> str:
    """Why `value` is not allowed; empty where it is."""
    if value in allowed:
        return ""
    return f"{what} {value}: takes {_listed(allowed)}"


def _listed(allowed: Sequence[str] | Numbers) -> str:
    if isinstance(allowed, range):
        return f"{allowed[0]} to {allowed[-1]}"
    return ", ".join(str(value) for value in sorted(allowed, key=lambda v: (isinstance(v, str), v)))
