"""SGLang, found running or started: one server for each arm. Held to recorded answers only."""

from __future__ import annotations

from typing import Any

from evalsuite.engines.serving.engine import ServedEngine
from evalsuite.engines.sglang.dialect import Sglang
from evalsuite.errors import UsageError


def open_engine(
    *,
    model: str | None,
    dtype: str | None,
    device: str | None,
    concurrency: int | None,
    options: dict[str, Any],
) -> ServedEngine:
    """Open an engine over SGLang; see `ServingOptions` for the options.

    Raises UsageError for a `device`, which SGLang finds by itself, and for bad options.
    """
    if device is not None:
        raise UsageError("SGLang finds its device by itself", field="engine.device")
    return ServedEngine(
        Sglang(), model=model, dtype=dtype, concurrency=concurrency, options=options
    )
