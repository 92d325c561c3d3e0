"""Compile every kernel for every architecture that the table declares, without a device.

    python -m sparse_mla.compile_gate [--representative] [--jobs N] [--only TEXT] [--json]

A configuration that does not fit an architecture's shared memory, or that keeps registers in
memory, would fail at launch or run many times slower there; both are seen here. Prints a table;
exit code 1 where a configuration fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparse_mla.gate_units import Unit

# Shared memory of one block (227 KB, CUDA programming guide, compute capability 9.0), and LDS of
# one workgroup (64 KB on CDNA 3, 160 KB on CDNA 4).
SHARED_LIMITS = {"sm_90": 227 * 1024, "gfx942": 64 * 1024, "gfx950": 160 * 1024}


@dataclass(frozen=True)
class Result:
    """One compilation: bytes of shared memory, registers of a thread, bytes kept in memory.

    `spills` are bytes of a thread's registers in local memory (NVIDIA: stack and local; AMD:
    private segment). An AMD scalar register kept in lanes of a vector register is none.
    """

    kernel: str
    label: str
    architecture: str
    shared: int
    registers: int
    spills: int
    seconds: float
    problem: str

    @property
    def limit(self) -> int:
        """Bytes of shared memory that a block may have."""
        return SHARED_LIMITS[self.architecture]


def compile_unit(unit: Unit) -> Result:
    """Compile one unit and read what it needs; what the compiler refuses is a problem."""
    started = time.perf_counter()
    try:
        shared, registers, spills = _figures(unit.architecture, _compile(unit))
        problem = ""
    # The compiler's passes fail with whatever they like; here any of it is a finding.
    except Exception as error:
        shared = registers = spills = 0
        problem = f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
    if shared > SHARED_LIMITS[unit.architecture]:
        problem = f"{shared} bytes of shared memory over {SHARED_LIMITS[unit.architecture]}"
    elif spills:
        problem = f"{spills} bytes of registers in memory"
    seconds = round(time.perf_counter() - started, 1)
    return Result(
        unit.kernel, unit.label, unit.architecture, shared, registers, spills, seconds, problem
    )


def _compile(unit: Unit) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

    names = list(unit.function.arg_names)
    types = dict(unit.types)
    constants = dict(unit.constants)
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = [name for name, kind in types.items() if kind[0] == "*" or name in unit.aligned]
    is_gluon = isinstance(unit.function, GluonJITFunction)
    source = (GluonASTSource if is_gluon else ASTSource)(
        unit.function,
        signature,
        {(names.index(name),): value for name, value in constants.items()},
        {(names.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )
    if unit.architecture.startswith("sm_"):
        target = GPUTarget("cuda", int(unit.architecture[3:]), 32)
    else:
        target = GPUTarget("hip", unit.architecture, 64)
    options = {"num_warps": unit.num_warps, "num_stages": unit.num_stages}
    return triton.compile(source, target=target, options=options)


def _figures(architecture: str, compiled: Any) -> tuple[int, int, int]:
    """Shared memory, registers and spilled bytes of a compiled kernel."""
    shared = int(compiled.metadata.shared)
    if architecture.startswith("sm_"):
        usage = _cubin_usage(compiled.asm["cubin"])
        return shared, usage["REG"], usage["STACK"] + usage["LOCAL"]
    text = compiled.asm["amdgcn"]
    read = {
        name: int(value)
        for name, value in re.findall(r"\.(vgpr_count|private_segment_fixed_size):\s*(\d+)", text)
    }
    return shared, read["vgpr_count"], read["private_segment_fixed_size"]


def _cubin_usage(cubin: bytes) -> dict[str, int]:
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}


def _compile_numbered(number: int) -> Result:
    from sparse_mla.gate_units import units

    return compile_unit(units()[number])


def compile_all(numbers: Iterable[int], jobs: int) -> Iterator[Result]:
    """Results of the units with these numbers, as they come in order; `jobs` processes."""
    if jobs == 1:
        yield from map(_compile_numbered, numbers)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_compile_numbered, numbers)


def _row(result: Result) -> str:
    verdict = result.problem or "ok"
    shared = f"{result.shared / 1024:6.1f} of {result.limit // 1024} KB"
    return (
        f"{result.architecture:7} {result.kernel:20} {result.label:68} {shared:>17} "
        f"{result.registers:4} regs {result.seconds:6.1f} s  {verdict}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sparse_mla.compile_gate")
    parser.add_argument("--representative", action="store_true", help="few, for every test run")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--only", default="", help="those whose kernel, label or target has TEXT")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser.parse_args()


def main() -> int:
    """Compile, print, and return the exit code."""
    asked = _arguments()
    from sparse_mla.gate_units import units

    numbers = [
        number
        for number, unit in enumerate(units())
        if (unit.representative or not asked.representative)
        and asked.only in f"{unit.architecture} {unit.kernel} {unit.label}"
    ]
    failed = 0
    for result in compile_all(numbers, asked.jobs):
        failed += bool(result.problem)
        print(json.dumps(asdict(result)) if asked.json else _row(result), flush=True)
    print(f"{len(numbers)} configurations, {failed} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        # Before Triton is imported, also by the worker processes: nothing old, nothing left.
        os.environ.update(TRITON_CACHE_DIR=folder, TRITON_INTERPRET="0")
        sys.exit(main())
