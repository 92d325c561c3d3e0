"""Prompts as token ids, by the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from evalsuite.errors import UsageError


def encoder(model: str | None) -> Callable[[str], tuple[int, ...]]:
    """Return what turns a prompt into ids. Raises UsageError where the tokenizer is not here."""
    path = None if model is None else Path(model) / "tokenizer.json"
    if path is None or not path.exists():
        raise UsageError(
            "needs a model folder with tokenizer.json", field="engine.options.prompt_ids"
        )
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))

    def encode(prompt: str) -> tuple[int, ...]:
        return tuple(tokenizer.encode(prompt).ids)

    return encode
