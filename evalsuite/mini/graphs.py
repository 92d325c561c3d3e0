"""Captured steps: a CUDA graph on a GPU, a traced program on a CPU.

Both freeze the addresses of static buffers and caches and every choice that Python made while
capturing. On the CPU `make_fx` records the step as ATen operators; its replay runs none of the
model's Python, so what only shows under replay shows there too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from evalsuite.errors import UsageError


class Captured(Protocol):
    """A step that can be run again on the same buffers."""

    def replay(self) -> None:
        """Run the step; it writes its static output buffers."""


class CudaGraph:
    """A step captured into a CUDA graph. All graphs of a session share one memory pool."""

    def __init__(self, step: Callable[[], Tensor], pool: Any) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=pool):
            step()

    def replay(self) -> None:
        """Launch the graph."""
        self._graph.replay()


class TracedProgram:
    """A step traced into a flat list of ATen operators."""

    def __init__(self, step: Callable[[], Tensor]) -> None:
        step()
        # make_fx counts the arguments of the code object, `self` of a bound method included.
        self._program = make_fx(lambda: step())()

    def replay(self) -> None:
        """Run the recorded operators."""
        self._program()


class GraphSet:
    """The captured steps of one session, by name and shape, with a count of replays each."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._pool = torch.cuda.graph_pool_handle() if self._on_gpu else None
        self._captured: dict[tuple[Any, ...], Captured] = {}
        self.replays: dict[tuple[Any, ...], int] = {}

    def capture(self, key: tuple[Any, ...], step: Callable[[], Tensor]) -> None:
        """Capture `step` under `key`. Raises UsageError with the reason where that fails."""
        try:
            with torch.no_grad():
                made = CudaGraph(step, self._pool) if self._on_gpu else TracedProgram(step)
        except RuntimeError as error:
            raise UsageError(f"cannot capture the {key} step: {error}") from error
        self._captured[key] = made
        self.replays[key] = 0

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self._captured

    def replay(self, key: tuple[Any, ...]) -> None:
        """Replay the step captured under `key` and count it."""
        self.replays[key] += 1
        self._captured[key].replay()

    def reset_counts(self) -> None:
        """Start counting anew, after a warm-up."""
        self.replays = dict.fromkeys(self.replays, 0)
