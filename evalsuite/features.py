"""Parts of the program that are loaded when their command is used."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from evalsuite.errors import UsageError


def feature(module: str, function: str, command: str) -> Callable[..., Any]:
    """Return `evalsuite.<module>.<function>`, imported only now since the parts are heavy.

    Raises UsageError saying that `command` is not in this version where the module is not there,
    or that a library is missing where the module needs one.
    """
    name = f"evalsuite.{module}"
    try:
        part = importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and f"{name}.".startswith(f"{problem.name}."):
            raise UsageError(f"`evalsuite {command}` is not in this version") from None
        raise UsageError(f"`evalsuite {command}` needs {problem.name}, not installed") from None
    found: Callable[..., Any] | None = getattr(part, function, None)
    if found is None:
        raise UsageError(f"`evalsuite {command}` is not in this version")
    return found
