"""Small readings that dialects share."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

import msgspec

from evalsuite.errors import UsageError

_VERSION = (
    "import sys; from importlib.metadata import packages_distributions as p, version as v; "
    "print(v(p()[sys.argv[1]][0]))"
)


def json_object(text: str | None) -> Mapping[str, Any]:
    """Return the JSON object in `text`, an empty one where there is none."""
    if text is None:
        return {}
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def installed_version(python: str, package: str) -> str | None:
    """Return the version of `package` that the interpreter `python` would import.

    None where `python` is no interpreter but another program, a container's say. Raises UsageError
    where it cannot be run, or has no such package.
    """
    if "python" not in python.rpartition("/")[2]:
        return None
    field = "engine.options.command"
    try:
        done = subprocess.run(
            [python, "-c", _VERSION, package],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise UsageError("no such program", file=python, field=field) from None
    if done.returncode != 0:
        told = f"has no {package}: name the interpreter that has"
        raise UsageError(told, file=python, field=field)
    return done.stdout.strip()
