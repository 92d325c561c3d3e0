"""Which classes vLLM resolves a model folder and its drafter to: `PYTHON resolve_glm.py FOLDER`.

vLLM looks into its multimodal classes for this architecture, which import torchvision by name. The
CPU build has none that fits, so a stub stands in for the name; nothing of it is called.
"""

from __future__ import annotations

import json
import sys
import types
from importlib.machinery import ModuleSpec
from typing import ClassVar


class Stub(types.ModuleType):
    """A module that has whatever is asked for."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stub(name: str) -> None:
    """Put a stub in the place of a module."""
    module = Stub(name)
    module.__spec__ = ModuleSpec(name, None)
    sys.modules[name] = module


def main(folder: str) -> None:
    """Print architecture and drafter as JSON."""
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional",
                 "torchvision.transforms.v2", "torchvision.transforms.v2.functional",
                 "torchvision.io"):  # fmt: skip
        stub(name)
    from vllm.config import ModelConfig, ParallelConfig, SpeculativeConfig

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
