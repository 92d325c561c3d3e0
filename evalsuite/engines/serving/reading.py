"""Small readings that dialects share."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
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


def installed_version(command: Sequence[str], module: str) -> str | None:
    """Return the version of the package that `command` runs by `PYTHON -m module`.

    None where it runs something else, a container say. Raises UsageError where there is no such
    interpreter, or it has no such package.
    """
    if tuple(command[1:3]) != ("-m", module):
        return None
    python, package = command[0], module.partition(".")[0]
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
