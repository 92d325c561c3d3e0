"""Sparse MLA against its peers: `make bench-kernels`.

    python benchmarks/kernels.py [--shapes D1,D64] [--out FOLDER]     the table
    python benchmarks/kernels.py --sweep [--shapes …]                 every configuration

Each figure is the median of CUDA graph replays. Every result is compared with float64 before it is
timed, and a peer that gives another answer is reported as wrong instead of timed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import kernel_paths  # noqa: F401
import torch
import triton
from kernel_page import page
from kernel_shapes import SHAPES, Shape
from kernel_timing import Launch, median_us
from sparse_problems import Problem
from torch import Tensor

from sparse_mla.attention import processors
from sparse_mla.compare import cosine_difference
from sparse_mla.configs import FEW_HEADS, GLUON, Config, choose_config, choose_split
from sparse_mla.packing import group_rows, pack_rows
from sparse_mla.reference import attention

PEERS = ("flash_mla", "vllm_triton", "flashinfer_mla")
RIGHT = 1e-4
CHECKED_ROWS = 3
Prepare = Callable[[Problem], Launch]

SWEPT = {
    "64": [GLUON, Config(64, 64, 8, 2)],
    "16": [FEW_HEADS, Config(16, 64, 4, 2), Config(16, 64, 8, 3), Config(16, 128, 8, 2)],
    "one row": [GLUON, FEW_HEADS, Config(16, 64, 4, 2), Config(16, 32, 4, 3), Config(32, 64, 8, 2)],
    "fp8": [FEW_HEADS, Config(16, 64, 8, 3), Config(16, 64, 4, 2), Config(16, 32, 4, 3)],
}


def ours(config: Config | None = None, split: int | None = None, packed: str = "") -> Prepare:
    """A launch of our kernel.

    packed: "" for rows apart; "inside" packs in every launch, "outside" once before the clock.
    """

    def prepare(problem: Problem) -> Launch:
        if not packed:
            return lambda: problem.run(config=config, split_size=split)[0]
        rows = group_rows(6, problem.query.shape[1])
        made = pack_rows(problem.indices, rows, len(problem.cache))
        if packed == "outside":
            return lambda: problem.run(config=config, packing=made)[0]

        def launch() -> Tensor:
            now = pack_rows(problem.indices, rows, len(problem.cache))
            return problem.run(config=config, packing=now)[0]

        return launch

    return prepare


def measure(
    name: str, shape: Shape, prepare: Prepare, problems: list[Problem], cold: bool
) -> dict[str, object]:
    """One figure with what it belongs to."""
    found: dict[str, object] = {"shape": shape.name, "kernel": name, "cold": cold}
    try:
        launches = [prepare(problem) for problem in problems]
        found["cosine"] = cosine = error(problems[0], launches[0]())
        if not cosine <= RIGHT:
            return found | {"wrong": f"cosine difference {cosine:.1e}"}
        found["us"] = median_us(launches)
    except Exception as failure:  # a peer that cannot run leaves the others' figures alone
        found["absent"] = f"{type(failure).__name__}: {failure}".partition("\n")[0][:200]
    return found


def error(problem: Problem, out: Tensor) -> float:
    """Cosine difference of the first rows from float64."""
    part = slice(CHECKED_ROWS)
    wanted, _ = attention(
        problem.query[part], problem.cache, problem.indices[part], problem.scale,
        kv_lora_rank=problem.rank, cache_scale=problem.cache_scale,
    )  # fmt: skip
    return cosine_difference(out[part], wanted)


def contestants(shape: Shape) -> Iterator[tuple[str, Prepare]]:
    """Our kernel as the table launches it, packed where that applies, and the peers."""
    yield "sparse_mla", ours()
    if shape.packable:
        yield "sparse_mla packed", ours(packed="inside")
        yield "sparse_mla packed, lists known", ours(packed="outside")
    if shape.fp8:
        return
    for name in PEERS:
        try:
            yield name, importlib.import_module(f"peers.{name}").load()
        except importlib.import_module("peers").Absent as absent:
            print(f"left out: {absent}")


def swept(shape: Shape) -> Iterator[tuple[str, Prepare]]:
    """Configurations and split sizes of our kernel, packed ones where that applies."""
    for config in SWEPT[_kind(shape)]:
        blocks = -(-shape.heads // config.block_h)
        for splits in (1, 2, 4, 8, 16, 32):
            if splits > 1 and shape.rows * blocks * splits > 132 * 7:
                continue
            tiles = -(-shape.topk // config.block_n // splits)
            yield f"{config.label} S{splits}", ours(config, tiles * config.block_n)
    if shape.packable:
        for config in SWEPT["64"]:
            yield f"packed {config.label}", ours(config, packed="outside")
        yield "packed, with lists", ours(GLUON, packed="inside")


def _kind(shape: Shape) -> str:
    if shape.fp8:
        return "fp8"
    return "one row" if shape.rows < 8 else "64" if shape.heads > 32 else "16"


def compile_ahead(shape_name: str) -> None:
    """Compile what a sweep of a shape launches, so that many processes share the work."""
    shape = next(shape for shape in SHAPES if shape.name == shape_name)
    problem = next(replace(shape, slots=65536).problems(cold=False))
    for name, prepare in swept(shape):
        try:
            prepare(problem)()
        except Exception as failure:  # the sweep itself reports it
            print(shape_name, name, f"{failure}".partition("\n")[0])
    torch.cuda.synchronize()


def chosen(shape: Shape) -> str:
    """The configuration and splits that our table gives a shape."""
    dtype = "fp8_e4m3" if shape.fp8 else "bfloat16"
    config = choose_config("sm_90", dtype, shape.heads, shape.rows)
    count = processors(torch.device("cuda", 0))
    split = choose_split(shape.rows, shape.heads, shape.topk, count, config)
    return f"{config.label} S{-(-shape.topk // split)}"


def main() -> int:
    """Measure, print as it goes, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", default=",".join(shape.name for shape in SHAPES))
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--kernels", default="", help="only those whose name starts like this")
    parser.add_argument("--prepare", type=int, default=0, help="processes that compile ahead")
    parser.add_argument("--warm", action="store_true", help="warm figures too")
    parser.add_argument("--machine", default="h200")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    names = arguments.shapes.split(",")
    shapes = [shape for shape in SHAPES if shape.name in names]
    if arguments.prepare:
        with ProcessPoolExecutor(arguments.prepare) as pool:
            list(pool.map(compile_ahead, names))
        return 0
    figures = []
    what = "kernels-sweep" if arguments.sweep else "kernels"
    for shape in shapes:
        for cold in (True, False) if arguments.warm else (True,):
            problems = list(shape.problems(cold))
            for name, prepare in (swept if arguments.sweep else contestants)(shape):
                if not name.startswith(arguments.kernels):
                    continue
                figure = measure(name, shape, prepare, problems, cold)
                figures.append(figure)
                note = f"{figure['us']:9.1f} us" if "us" in figure else str(figure)
                print(f"{shape.name:6} {name:32} {'cold' if cold else 'warm'} {note}", flush=True)
        write(arguments.out / f"{what}-{arguments.machine}.json", figures, shapes)
    return 0


def write(path: Path, figures: list[dict[str, object]], shapes: list[Shape]) -> None:
    """The figures as JSON, and beside it as a table."""
    software = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }
    configs = {shape.name: chosen(shape) for shape in shapes}
    found = {"software": software, "configurations": configs, "figures": figures}
    path.write_text(json.dumps(found, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(software, configs, figures, shapes))


if __name__ == "__main__":
    sys.exit(main())
