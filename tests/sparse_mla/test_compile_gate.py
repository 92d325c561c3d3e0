"""The compile gate: representative kernels compile for every architecture, and what fails is seen.

It runs in a process of its own, as kernels of this one belong to Triton's interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

KERNELS = Path(__file__).parents[2] / "kernels"
TOO_MUCH = """
import sys
from dataclasses import asdict
import json
from sparse_mla.compile_gate import compile_unit
from sparse_mla.configs import Case, Config
from sparse_mla.gate_units import attention_unit

for config in (Config(64, 64, 8, 3), Config(64, 64, 4, 2), Config(64, 48, 4, 2)):
    case = Case("sm_90", "bfloat16", 512, 0, 64, 1, False, config)
    print(json.dumps(asdict(compile_unit(attention_unit(case)))), flush=True)
"""


def gate(tmp_path: Path, *arguments: str) -> tuple[int, list[dict[str, object]]]:
    """Exit code and results of a Python process that compiles."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(KERNELS),
        "TRITON_INTERPRET": "0",
        "TRITON_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert results, done.stderr
    return done.returncode, results


def test_representative_kernels_compile_for_every_architecture(tmp_path: Path) -> None:
    code, results = gate(
        tmp_path, "-m", "sparse_mla.compile_gate", "--representative", "--json", "--jobs", "1"
    )
    assert [r for r in results if r["problem"]] == []
    assert code == 0
    assert len(results) <= 30
    assert {r["architecture"] for r in results} == {"sm_90", "gfx942", "gfx950"}
    for architecture in ("sm_90", "gfx942", "gfx950"):
        kernels = {r["kernel"] for r in results if r["architecture"] == architecture}
        assert kernels >= {"partial_attention", "pool_scores_kernel", "select_kernel"}
    assert all(r["registers"] for r in results)


def test_what_cannot_run_well_fails(tmp_path: Path) -> None:
    _, (shared, spilled, refused) = gate(tmp_path, "-c", TOO_MUCH)
    assert "bytes of shared memory over 232448" in str(shared["problem"])
    assert "bytes of registers in memory" in str(spilled["problem"])
    assert spilled["spills"] and not spilled["shared"] > 232448  # type: ignore[operator]
    assert "Error" in str(refused["problem"])
