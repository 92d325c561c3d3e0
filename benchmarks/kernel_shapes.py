"""The shapes that the attention kernels are measured at, with their floors and targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from sparse_problems import Problem, make, shared_lists
from torch import Tensor

POOL_BYTES = 1 << 30
# More than the L2 cache holds: a list is cold again when its turn comes.
ROTATION_BYTES = 192 << 20
MOST_TURNS = 48


@dataclass(frozen=True)
class Shape:
    """`rows` query rows in requests of `width`, a share `shared` of whose keys is common.

    `slots`: the cache, 1 GiB of it where not given. Microseconds: `floor` from the measured
    bandwidths and matrix rate of one H200, `must` and `aim` the targets.
    """

    name: str
    rows: int
    heads: int
    floor: float | None = None
    must: float | None = None
    aim: float | None = None
    width: int = 1
    shared: float = 0.0
    fp8: str = ""
    rope: int = 0
    slots: int | None = None
    topk: int = 2048

    @property
    def row_bytes(self) -> int:
        """Bytes of one cache row."""
        return (512 + self.rope) * (1 if self.fp8 else 2)

    @property
    def packable(self) -> bool:
        """Whether packing rows of one request can pay."""
        return self.width > 1 and self.heads <= 32 and not self.fp8

    def turns(self, cold: bool) -> int:
        """Launches of one graph: enough lists that none is still in the L2 cache."""
        if not cold or self.slots is not None:
            return 2 if self.rows > 1000 else 8
        once = self.rows * self.topk * self.row_bytes
        return max(3, min(MOST_TURNS, -(-ROTATION_BYTES // once)))

    def problems(self, cold: bool, device: str = "cuda") -> Iterator[Problem]:
        """The problems of one graph: one cache, a list for each turn (one list where warm)."""
        slots = self.slots or POOL_BYTES // self.row_bytes
        first = make(
            self.rows, self.heads, topk=self.topk, slots=slots, rope=self.rope, fp8=self.fp8,
            width=self.width, shared=self.shared, device=device,
        )  # fmt: skip
        yield first
        for turn in range(1, self.turns(cold)):
            indices = self._lists(first, slots, turn, device) if cold else first.indices
            yield replace(first, indices=indices)

    def _lists(self, first: Problem, slots: int, turn: int, device: str) -> Tensor:
        generator = torch.Generator(device).manual_seed(turn)
        arguments = (self.rows, self.topk, slots, self.width, self.shared, generator, device)
        return shared_lists(*arguments)


SHAPES = (
    Shape("D1", 1, 64, None, 13, 10),
    Shape("D64", 64, 64, 31, 64, 45),
    Shape("V16", 96, 64, 47, 95, 65, width=6),
    Shape("V64", 384, 64, 187, 330, 230, width=6),
    Shape("V64s", 384, 16, 155, 150, 90, width=6, shared=0.83),
    Shape("D256s", 256, 16, 125, 135, 128),
    Shape("P4k", 4096, 64, 1392, 3700, 2300, slots=32768),
    Shape("V64fs", 384, 16, 97, None, None, width=6, fp8="tensor"),
    Shape("V64ss", 384, 16, 191, None, None, width=6),
    Shape("V64r", 384, 64, 224, None, None, width=6, rope=64),
)
