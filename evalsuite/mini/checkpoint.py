"""Load a model folder: config.json, model.safetensors, tokenizer.json. All of it is checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from evalsuite.errors import UsageError
from evalsuite.mini.config import MiniConfig, load_config
from evalsuite.mini.names import tensor_specs
from evalsuite.mini.text import byte_alphabet

WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "config.json"
WEIGHT_TYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
EMBEDDED = Path(__file__).parents[1] / "models" / "glm53_mini"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder in memory; tensors on the CPU in their storage types."""

    folder: Path
    config: MiniConfig
    tensors: dict[str, Tensor]
    tokenizer: Tokenizer
    model_hash: str


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read and check a model folder. Raises UsageError naming file and field or tensor."""
    if not folder.is_dir():
        raise UsageError("no such model folder", file=folder)
    config = load_config(folder / CONFIG_FILE)
    tensors = load_tensors(folder / WEIGHTS_FILE, config)
    tokenizer = load_tokenizer(folder / TOKENIZER_FILE, config)
    return Checkpoint(folder, config, tensors, tokenizer, _hash(folder))


def load_tensors(path: Path, config: MiniConfig) -> dict[str, Tensor]:
    """Read every tensor of the configuration; missing, foreign or misshapen ones are refused."""
    if not path.is_file():
        raise UsageError("no such file", file=path)
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UsageError(f"damaged or not a safetensors file: {error}", file=path) from None
    specs = {spec.name: spec for spec in tensor_specs(config)}
    for name in sorted(specs.keys() - found.keys()):
        raise UsageError("tensor is missing", file=path, field=name)
    for name in sorted(found.keys() - specs.keys()):
        raise UsageError(
            "unknown tensor: config.json describes no such weight", file=path, field=name
        )
    for name, spec in specs.items():
        _check_tensor(found[name], spec.shape, path, name)
    return found


def _check_tensor(tensor: Tensor, shape: tuple[int, ...], path: Path, name: str) -> None:
    if tuple(tensor.shape) != shape:
        raise UsageError(
            f"shape {tuple(tensor.shape)}, but config.json asks for {shape}", file=path, field=name
        )
    if tensor.dtype not in WEIGHT_TYPES:
        raise UsageError(
            f"type {tensor.dtype} is none of float32, bfloat16, float16", file=path, field=name
        )
    if not torch.isfinite(tensor).all():
        raise UsageError("holds NaN or infinite values", file=path, field=name)


def load_tokenizer(path: Path, config: MiniConfig) -> Tokenizer:
    """Read tokenizer.json: byte-level BPE whose ids fit the model's vocabulary."""
    if not path.is_file():
        raise UsageError("no such file", file=path)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the binding raises bare Exception for any damage
        raise UsageError(f"not a tokenizer file: {error}", file=path) from None
    vocab = tokenizer.get_vocab()
    largest = max(vocab.values(), default=-1)
    if largest >= config.vocab_size:
        raise UsageError(
            f"token id {largest}, but vocab_size in config.json is {config.vocab_size}",
            file=path,
            field="vocab",
        )
    special, alphabet = tokenizer.get_added_tokens_decoder(), byte_alphabet()
    for piece, token in vocab.items():
        if token not in special and not all(letter in alphabet for letter in piece):
            raise UsageError(
                f"token {piece!r} is not written in byte-level BPE's letters",
                file=path,
                field="vocab",
            )
    return tokenizer


def cast(
    tensors: dict[str, Tensor], config: MiniConfig, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Tensors in compute type on `device`; the names that keep float32 keep it."""
    keep = {spec.name for spec in tensor_specs(config) if spec.float32}
    return {
        name: tensor.to(device, torch.float32 if name in keep else dtype)
        for name, tensor in tensors.items()
    }


def _hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in (CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FILE):
        digest.update(name.encode())
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()
