"""What vLLM writes only on a GPU, written by its own code here and read by ours."""

from __future__ import annotations

import os
import subprocess

from live import ENVIRONMENT, PYTHON

from evalsuite.engines.vllm.log import VllmLog

CODE = """
from vllm.compilation.cuda_graph import CUDAGraphLogging, CUDAGraphStat
from vllm.config import CompilationConfig, CUDAGraphMode
log = CUDAGraphLogging(CUDAGraphMode.FULL_AND_PIECEWISE, [1, 2, 4, 8])
for tokens, mode, count in ((6, "FULL", 40), (300, "PIECEWISE", 3), (900, "NONE", 2)):
    for _ in range(count):
        log.observe(CUDAGraphStat(tokens, tokens + 2, 2, mode))
log.log(print)
config = CompilationConfig(cudagraph_mode="FULL_AND_PIECEWISE", max_cudagraph_capture_size=512)
print(f"Initializing a V1 LLM engine (v1) with config: compilation_config={config!r}, x")
"""


def test_the_table_of_graph_steps_and_the_graph_mode() -> None:
    done = subprocess.run(
        [str(PYTHON), "-c", CODE],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    log = VllmLog()
    for line in done.stdout.splitlines():
        log.on_line(line)
    assert log.tables == 1
    assert (log.steps.full, log.steps.piecewise, log.steps.eager) == (40, 3, 2)
    assert log.settings["graph_mode"] == "FULL_AND_PIECEWISE"
    assert log.largest == 512
