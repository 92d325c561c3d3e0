"""Which model a server serves: a hash, its number type, its chat template."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from evalsuite.errors import UsageError

# Weights up to this size are hashed whole; larger ones by size, head and samples.
WHOLE = 2 * 2**30
SAMPLE = 2**20
SAMPLES = 16
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
_TEXTS = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def model_hash(model: str | None, served: str | None, revision: str | None) -> str:
    """Return 16 hex digits that stand for a model.

    A folder's are over its configuration, tokenizer and weights, so that a changed checkpoint is
    another model; a repository's over its name and revision, which is all that is known of it here
    and the same for a server that was started and one that was found running.
    """
    if model is not None and Path(model).is_dir():
        return _folder_hash(Path(model))
    name = model or served or "?"
    return hashlib.sha256(f"{name}@{revision or 'main'}".encode()).hexdigest()[:16]


def _folder_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    weights = sorted({path for pattern in _WEIGHTS for path in folder.glob(pattern)})
    if not weights:
        raise UsageError("holds no weights", file=folder, field="engine.model")
    whole = sum(path.stat().st_size for path in weights) <= WHOLE
    for name in _TEXTS:
        if (folder / name).exists():
            digest.update(name.encode() + (folder / name).read_bytes())
    for path in weights:
        _add(digest, path, whole)
    return digest.hexdigest()[:16]


def _add(digest: Any, path: Path, whole: bool) -> None:
    size = path.stat().st_size
    digest.update(f"{path.name}:{size}".encode())
    with path.open("rb") as file:
        if whole:
            while block := file.read(16 * SAMPLE):
                digest.update(block)
            return
        for index in range(SAMPLES):
            file.seek(index * max(size - SAMPLE, 0) // (SAMPLES - 1))
            digest.update(file.read(SAMPLE))


def model_dtype(model: str | None, asked: str | None) -> str:
    """Return the number type of a run: the suite's, else the model's own, else `auto`."""
    if asked is not None:
        return asked
    config = _config(model)
    told = config.get("dtype") or config.get("torch_dtype")
    return str(told) if told else "auto"


def chat_template(model: str | None) -> str | None:
    """Return the chat template in a model's folder."""
    if model is None:
        return None
    path = Path(model) / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    settings = _read(Path(model) / "tokenizer_config.json").get("chat_template")
    return settings if isinstance(settings, str) else None


def _config(model: str | None) -> dict[str, Any]:
    return {} if model is None else _read(Path(model) / "config.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as problem:
        raise UsageError(f"is no JSON: {problem}", file=path, field="engine.model") from None
    return data if isinstance(data, dict) else {}


def plain_dtype(name: object) -> str:
    """Return a number type without the library's prefix: `torch.bfloat16` is `bfloat16`."""
    return re.sub(r"^torch\.", "", str(name))
