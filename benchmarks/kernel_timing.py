"""Times of kernels: medians of CUDA graph replays."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Launch = Callable[[], Tensor]


def median_us(launches: Sequence[Launch], replays: int = 15) -> float:
    """Microseconds of one launch: a graph of all `launches` in order, its median replay.

    With the launches over different index lists of a large pool each finds a cold cache, with the
    same launch repeated a warm one.
    """
    launches[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    for _ in range(2):
        graph.replay()
    times = []
    for _ in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000.0 / len(launches))
    return statistics.median(times)
