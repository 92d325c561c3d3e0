"""The eight calls of vLLM #55239's route test, as geometries.

Each is (cache dtype, row width, prefills, decodes, decode rows, widest request): what the selector
looked at that sent the rows of verification to a kernel built for other rows.
"""

from __future__ import annotations

from typing import NamedTuple

from sparse_mla.geometry import DECODE, PREFILL, Geometry, verify


class Route(NamedTuple):
    """One call as the selector saw it."""

    cache_dtype: str
    head_size: int
    prefills: int
    decodes: int
    decode_rows: int
    widest: int

    def row_kinds(self) -> frozenset[str]:
        """Kinds of rows in the call."""
        kinds = {PREFILL} if self.prefills else set()
        if self.decodes:
            width = self.decode_rows // self.decodes
            kinds.add(DECODE if width == 1 else verify(width))
        return frozenset(kinds)

    def rows(self) -> int:
        """Query rows of the call."""
        return (self.widest if self.prefills else 0) + self.decode_rows

    def geometry(self, architecture: str, heads: int = 64, topk: int = 2048) -> Geometry:
        """The call's geometry; "auto" is the model's own type."""
        dtype = {"auto": "bfloat16", "fp8": "fp8_e4m3"}[self.cache_dtype]
        rope = self.head_size - 512
        return Geometry(architecture, dtype, 512, rope, heads, self.row_kinds(), topk)


ROUTES = {
    "prefill": Route("auto", 512, 1, 0, 0, 32),
    "prefill with 2 decodes": Route("auto", 512, 1, 2, 2, 32),
    "plain decode": Route("auto", 512, 0, 2, 2, 1),
    "FP8 prefill": Route("fp8", 512, 1, 0, 0, 32),
    "576-wide prefill": Route("auto", 576, 1, 0, 0, 32),
    "2 requests, 4 verification rows": Route("auto", 512, 0, 2, 4, 2),
    "2 requests, 12 verification rows": Route("auto", 512, 0, 2, 12, 6),
    "empty": Route("auto", 512, 0, 0, 0, 0),
}
