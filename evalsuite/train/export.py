"""Write trained parameters as a Hugging Face folder under the published names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from evalsuite.train.architecture import Architecture
from evalsuite.train.tokenizer import END_OF_TEXT, PAD


def export_weights(params: dict[str, Tensor], architecture: Architecture, path: Path) -> None:
    """Write one safetensors file: bfloat16, but float32 for the names that keep it."""
    tensors = {}
    for spec in architecture.specs:
        dtype = torch.float32 if spec.float32 else torch.bfloat16
        tensors[spec.name] = params[spec.name].detach().to("cpu", dtype).contiguous()
    for name, original in architecture.copies.items():
        tensors[name] = tensors[original].clone()
    save_file(tensors, path, metadata={"format": "pt"})


def export_folder(
    params: dict[str, Tensor],
    architecture: Architecture,
    raw_config: dict[str, Any],
    tokenizer: Tokenizer,
    folder: Path,
) -> None:
    """Write config, weights and tokenizer files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    export_weights(params, architecture, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(raw_config, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": architecture.config.max_position_embeddings,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(facts, indent=2) + "\n")
