"""Which tile sizes the attention kernels run with, as a table, and how keys are split.

A fixed table and no autotuning: a captured graph needs its kernels before the capture, and a row's
result must not depend on what was timed. The figures behind it: benchmarks/results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

INTERPRETER_PROCESSORS = 4


@dataclass(frozen=True)
class Config:
    """One way to launch a kernel: heads and keys of a tile, warps, pipeline stages.

    `kernel` is "triton" or "gluon". `resident` is how many programs one multiprocessor holds.
    `fixed_cost` is a program's start and end in units of tiles; both guide the number of splits.
    """

    block_h: int
    block_n: int
    num_warps: int
    num_stages: int
    kernel: str = "triton"
    resident: int = 1
    fixed_cost: float = 2.0

    @property
    def label(self) -> str:
        """For tables: kernel, tile, warps and stages."""
        tile = f"{self.block_h}x{self.block_n}"
        return f"{self.kernel} {tile} {self.num_warps}w {self.num_stages}s"


@dataclass(frozen=True)
class Case:
    """What one compiled kernel is specialised for. `heads` counts those of all packed rows."""

    architecture: str
    cache_dtype: str
    kv_lora_rank: int
    rope_dim: int
    heads: int
    packed_rows: int
    split: bool
    config: Config


WIDE = Config(64, 64, 8, 2)
NARROW = Config(16, 64, 4, 2, resident=2)
GLUON = Config(64, 64, 4, 2, kernel="gluon")
# Heads on the narrow side of a wgmma: gluon_few_heads.py.
FEW_HEADS = Config(16, 64, 4, 3, kernel="gluon")
# NARROW's four warps keep registers in memory for an FP8 cache.
NARROW_FP8 = Config(16, 64, 8, 3)
# From blocks of so many heads on, heads are the rows of a wgmma.
MMA_HEADS = 64
# With so few rows their heads are spread over more programs.
FEW_ROWS = 4
# gfx942 has 64 KB of LDS for a program, gfx950 160 KB; tiles of more heads spill on both.
GFX942 = Config(16, 32, 4, 2)
GFX950 = Config(16, 64, 4, 2)
SMALL = Config(16, 16, 4, 1)


def choose_config(
    architecture: str,
    cache_dtype: str,
    heads: int,
    rows: int | None = None,
    gluon: bool = True,
) -> Config:
    """The configuration for `heads` heads (of all packed rows) of one list of keys.

    Without `rows` it is the same for any number of them, so that a row's result does not change
    with its company. `gluon`: whether the tensors are such as Hopper's kernels in Gluon take.
    """
    if architecture == "gfx942":
        return GFX942
    if architecture == "gfx950":
        return GFX950
    if architecture == "interpreter":
        return SMALL
    fp8 = cache_dtype.startswith("fp8")
    if not gluon and not fp8 and heads > 16:
        return WIDE
    if not gluon or (rows is not None and rows <= FEW_ROWS):
        return NARROW_FP8 if fp8 else NARROW
    return FEW_HEADS if fp8 or heads <= 16 else GLUON


@cache
def choose_split(rows: int, heads: int, topk: int, processors: int, config: Config) -> int:
    """Columns of one split, a multiple of the tile: the estimated time is the least.

    Time counts in tiles: waves of programs times tiles of each and a program's fixed cost, plus the
    merge, which reads what the splits wrote. Fitted to the sweep on an H200 (benchmarks/results).
    """
    tiles = -(-topk // config.block_n)
    blocks = -(-heads // config.block_h)
    best, least = tiles, float("inf")
    for splits in range(1, tiles + 1):
        each = -(-tiles // splits)
        if -(-tiles // each) != splits:
            continue
        waves = -(-rows * blocks * splits // (processors * config.resident))
        time = waves * (each + config.fixed_cost)
        if splits > 1:
            time += 2.0 + splits * (0.05 + rows * heads / 2560)
        if time < least:
            best, least = each, time
    return best * config.block_n


def all_configs() -> Iterator[Case]:
    """Every specialisation that a launch on a GPU can ask for at the model's geometry."""
    for architecture in ("sm_90", "gfx942", "gfx950"):
        for dtype in ("bfloat16", "fp8_e4m3", "fp8_e4m3_row"):
            for rope in (0, 64):
                for heads in (8, 16, 32, 64, 128):
                    chosen = {
                        choose_config(architecture, dtype, heads, *rest)
                        for rest in ((1,), (None,), (None, False))
                    }
                    for config in sorted(chosen, key=lambda config: config.label):
                        for split in (False, True):
                            yield Case(architecture, dtype, 512, rope, heads, 1, split, config)
                for rows in (2, 3, 4):
                    config = choose_config(architecture, dtype, 16 * rows)
                    for split in (False, True):
                        yield Case(architecture, dtype, 512, rope, 16 * rows, rows, split, config)
