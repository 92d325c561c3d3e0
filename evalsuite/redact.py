"""Secrets taken out of whatever is about to be written."""

from __future__ import annotations

import re
from typing import TypeVar, cast

T = TypeVar("T")

HIDDEN = "***"

_SECRET_NAME = re.compile(
    r"^(?:key|token)$|(?:^|[_\-.])(?:secret|password|passwd|passphrase|credentials?|authorization"
    r"|bearer|(?:api|access|secret|private)[_-]?key|(?:auth|access|api|hf|bearer)[_-]?token)$",
    re.IGNORECASE,
)
_NAMES = r"(?:api[_-]?key|secret|password|passwd|(?:auth|access|hf)?[_-]?token|authorization)"
_IN_TEXT = (
    # user:password@ in a URL
    (re.compile(r"(\w[\w+.\-]*://)[^\s/@]+@"), rf"\1{HIDDEN}@"),
    # --api-key …
    (re.compile(rf"(--[\w\-]*{_NAMES}[=\s]+)\S+", re.IGNORECASE), rf"\1{HIDDEN}"),
    # ?token=… and "password": "…"
    (
        re.compile(rf"({_NAMES}[\"']?\s*[=:]\s*[\"']?)(?!bearer)[^\s\"'&,;]{{6,}}", re.IGNORECASE),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"\b(?:sk-|hf_|ghp_|github_pat_|xox[abp]-)[A-Za-z0-9_\-]{8,}"), HIDDEN),
    (re.compile(r"\b(bearer\s+)[A-Za-z0-9._\-]{8,}", re.IGNORECASE), rf"\1{HIDDEN}"),
)


def redact(value: T) -> T:
    """Return `value` (text, number, list or dict) with secrets replaced by `***`.

    A secret is what stands under a name like `api_key`, `token` or `password`, in the user part of
    a URL, behind such a name in a text, or has the form of a well-known provider's key.
    """
    return cast(T, _clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, dict):
        return {
            key: HIDDEN if _SECRET_NAME.search(str(key)) and inner is not None else _clean(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        before = (None, *value)
        return type(value)(
            HIDDEN if _is_secret_flag(flag) and isinstance(inner, str) else _clean(inner)
            for flag, inner in zip(before, value, strict=False)
        )
    return value


def _is_secret_flag(word: object) -> bool:
    """Whether `word` is a command line's `--api-key`, so that the next word is a secret."""
    return (
        isinstance(word, str)
        and word.startswith("-")
        and bool(_SECRET_NAME.search(word.lstrip("-")))
    )


def _clean_text(text: str) -> str:
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text
