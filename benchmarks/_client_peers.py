"""The clients that `client.py` measures beside this project's: lm-eval's, and vLLM's script."""

from __future__ import annotations

import contextlib
import io
import json
import re
import resource
import subprocess
import tempfile
from pathlib import Path

from gsm_mini.rows import read_split

SHOTS = 8
FEW = 16
SCRIPT = "vLLM gsm8k_eval.py"


def lm_eval(port: int, texts: list[str], concurrency: int) -> None:
    """Ask by lm-eval's `local-completions`."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    model = LocalCompletionsAPI(
        base_url=f"http://127.0.0.1:{port}/v1/completions",
        model="instant",
        tokenizer_backend=None,
        tokenized_requests=False,
        num_concurrent=concurrency,
        max_retries=1,
    )
    arguments = {"until": ["Question:"], "max_gen_toks": 256, "temperature": 0.0}
    asked = [Instance("generate_until", {}, (text, arguments), n) for n, text in enumerate(texts)]
    with contextlib.redirect_stderr(io.StringIO()):
        answers = model.generate_until(asked, disable_tqdm=True)
    assert len(answers) == len(texts) and all(answers)


class VllmScript:
    """vLLM's script in its own interpreter, on its own data files, which hold our questions."""

    def __init__(self, script: Path, python: str) -> None:
        self.script, self.python = script, python
        self.folder = tempfile.mkdtemp()
        self.starting_cpu_s = 0.0

    def measure_start(self, port: int) -> None:
        """Measure the processor time that the script takes before it asks."""
        begun = cpu_seconds()
        self(port, [""] * FEW, FEW)
        self.starting_cpu_s = cpu_seconds() - begun

    def __call__(self, port: int, texts: list[str], concurrency: int) -> float:
        """Return the seconds that the script itself measured."""
        rows = read_split("test")
        asked = [rows[n % len(rows)] for n in range(len(texts))]
        for name, part in (("train", read_split("fewshot")[:SHOTS]), ("test", asked)):
            lines = [json.dumps({"question": r["question"], "answer": r["answer"]}) for r in part]
            Path(self.folder, f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [
                *(self.python, str(self.script), "--port", str(port), "--num-shots", str(SHOTS)),
                *("--num-questions", str(len(texts)), "--max-concurrency", str(concurrency)),
            ],
            capture_output=True,
            text=True,
            check=True,
            env={"TMPDIR": self.folder, "PATH": "/usr/bin:/bin", "HOME": self.folder},
        )
        found = re.search(r"Total latency: ([\d.]+) s", done.stdout)
        assert found is not None and "Error calling" not in done.stdout, done.stdout[-500:]
        return float(found[1])


def cpu_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
