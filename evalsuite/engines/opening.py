"""Opening an engine by its kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import cast

from evalsuite.engines.base import Engine
from evalsuite.errors import UsageError
from evalsuite.suite import EngineConfig

FACTORY = "open_engine"


def open_engine(config: EngineConfig) -> Engine:
    """Open the engine that `config` names.

    A built-in kind is the module `evalsuite.engines.<kind>`; another one is `module:function`. The
    function is called with the keywords model, dtype, device, concurrency and options. Raises
    UsageError where there is no such engine, or where it refuses its configuration.
    """
    module, _, function = config.kind.partition(":")
    if not function:
        module, function = f"evalsuite.engines.{config.kind}", FACTORY
    factory = getattr(_module(module, config.kind), function, None)
    if not callable(factory):
        raise UsageError(f"{module} has no function {function}", field="engine.kind")
    return cast(Callable[..., Engine], factory)(
        model=config.model,
        dtype=config.dtype,
        device=config.device,
        concurrency=config.concurrency,
        options=dict(config.options),
    )


def _module(name: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        # A missing library inside the engine's module is another fault than a missing engine.
        if problem.name is not None and (name == problem.name or name.startswith(problem.name)):
            raise UsageError(f"there is no engine {kind!r} here", field="engine.kind") from None
        raise UsageError(
            f"engine {kind!r} needs {problem.name}, which is not installed", field="engine.kind"
        ) from None
