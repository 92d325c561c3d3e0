"""As far as a CPU can show, vLLM takes the miniature of GLM-5.3-Flash for what it is.

What this does not show: that vLLM's kernels take its rows, that the weights load, that it answers.
The architecture needs a GPU for that.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from live import ENVIRONMENT, PYTHON

from evalsuite.paths import EMBEDDED_MODEL


def test_the_folder_resolves_to_the_architecture_and_its_mtp_drafter() -> None:
    script = Path(__file__).parent / "resolve_glm.py"
    done = subprocess.run(
        [str(PYTHON), str(script), str(EMBEDDED_MODEL)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": str(script.parent / "torchvision_stub")},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert lines, done.stderr[-2000:]
    assert json.loads(lines[0].removeprefix("FOUND ")) == {
        "model": "Glm5NextForCausalLM",
        "drafter": "Glm5NextMTPModel",
        "method": "mtp",
    }
