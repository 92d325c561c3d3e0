"""Which classes vLLM resolves a model folder and its drafter to: `PYTHON resolve_glm.py FOLDER`."""

from __future__ import annotations

import json
import sys

from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig


def main(folder: str) -> None:
    """Print architecture and drafter as JSON."""
    model = ModelConfig(model=folder, tokenizer=folder, dtype="bfloat16", max_model_len=1024)
    drafter = SpeculativeConfig(
        method="mtp",
        num_speculative_tokens=5,
        target_model_config=model,
        target_parallel_config=ParallelConfig(),
    )
    found = {
        "model": model.architecture,
        "drafter": drafter.draft_model_config.architecture,
        "method": drafter.method,
    }
    print("FOUND " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
