"""Where the tokens of an answer begin and end in its text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from evalsuite.paths import EMBEDDED_MODEL
from evalsuite.records import Run

FILE = "tokenizer.json"


def tokenizer_of(run: Run) -> Tokenizer | None:
    """Return the tokenizer of a run's model where its file is on this machine, else None.

    Nothing is downloaded: a report needs no network.
    """
    if run.model is None:
        return None
    folder = EMBEDDED_MODEL if run.model == EMBEDDED_MODEL.name else Path(run.model)
    file = folder / FILE
    return Tokenizer.from_file(str(file)) if file.is_file() else None


def piece_lengths(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[int] | None:
    """Return how many characters of `text` each token covers, up to the text's end.

    A token that only begins a character covers none. None where the tokens do not spell the text:
    then they belong to another tokenizer.
    """
    stream = DecodeStream(skip_special_tokens=False)
    lengths: list[int] = []
    at = 0
    for token in ids:
        if at >= len(text):
            break
        piece = stream.step(tokenizer, int(token)) or ""
        # A stop string is cut out of the text, so the last token may reach over its end.
        if text[at : at + len(piece)] != piece[: len(text) - at]:
            return None
        covered = min(len(piece), len(text) - at)
        lengths.append(covered)
        at += covered
    return lengths if at == len(text) else None
