"""The geometry of one attention call: all that the choice of a kernel may depend on."""

from __future__ import annotations

from dataclasses import dataclass

INTERPRETER = "interpreter"
CPU = "cpu"
PREFILL = "prefill"
DECODE = "decode"
MAX_WIDTH = 6

CACHE_DTYPES = ("bfloat16", "float16", "float32", "fp8_e4m3", "fp8_e4m3_row")


class UnsupportedGeometry(ValueError):
    """No kernel can compute this geometry; the message tells for each kernel why not."""


def verify(width: int) -> str:
    """The row kind of verification rows, `width` rows for each request."""
    if width < 1:
        raise ValueError(f"a verification block of {width} rows")
    return f"verify:{width}"


def row_width(kind: str) -> int:
    """Rows of one request in a call: 0 for prefill (any), 1 for decode, n for `verify:n`.

    Raises ValueError for anything else.
    """
    if kind == PREFILL:
        return 0
    if kind == DECODE:
        return 1
    name, _, width = kind.partition(":")
    if name == "verify" and width.isdigit() and int(width) >= 1:
        return int(width)
    raise ValueError(f"row kind {kind!r} is none of prefill, decode, verify:n")


@dataclass(frozen=True)
class Geometry:
    """What one call of sparse MLA looks like to a kernel.

    `architecture` is "sm_90", "gfx942", "gfx950" …; "interpreter" where Triton's interpreter
    runs; "cpu". `cache_dtype` is one of CACHE_DTYPES: "fp8_e4m3" has one scale for the tensor,
    "fp8_e4m3_row" one for each row. A cache row is `kv_lora_rank + rope_dim` wide, of which the
    first `kv_lora_rank` are the value. `row_kinds` names the kinds of rows in the call, "prefill",
    "decode", "verify:2" and so on; an empty set is an empty batch. `topk` is the number of columns
    of the index list. Raises ValueError for values that no call can have.
    """

    architecture: str
    cache_dtype: str
    kv_lora_rank: int
    rope_dim: int
    heads: int
    row_kinds: frozenset[str]
    topk: int

    def __post_init__(self) -> None:
        if self.cache_dtype not in CACHE_DTYPES:
            raise ValueError(f"cache_dtype {self.cache_dtype!r} is none of {CACHE_DTYPES}")
        for field in ("kv_lora_rank", "heads", "topk"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} {getattr(self, field)} is not positive")
        if self.rope_dim < 0:
            raise ValueError(f"rope_dim {self.rope_dim} is negative")
        for kind in self.row_kinds:
            row_width(kind)

    @property
    def width(self) -> int:
        """Elements of a cache row, and of a query row for each head."""
        return self.kv_lora_rank + self.rope_dim

    def __str__(self) -> str:
        kinds = "+".join(sorted(self.row_kinds)) or "no rows"
        cache = f"{self.cache_dtype} {self.kv_lora_rank}+{self.rope_dim}"
        return f"{self.architecture} {cache}, {self.heads} heads, {kinds}, top-{self.topk}"
