"""The fused kernels of the GPU path, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
HERE = Path(__file__).parent


def test_fused_kernels_agree_with_their_formulas() -> None:
    paths = [str(HERE), *(p for p in sys.path if p)]
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    script = [sys.executable, str(HERE / "fused_interpreted.py")]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "fused kernels agree" in done.stdout
