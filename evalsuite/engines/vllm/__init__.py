"""vLLM, found running or started: one server for each arm."""

from __future__ import annotations

from typing import Any

from evalsuite.engines.serving.engine import ServedEngine
from evalsuite.engines.vllm.dialect import Vllm
from evalsuite.errors import UsageError


def open_engine(
    *,
    model: str | None,
    dtype: str | None,
    device: str | None,
    concurrency: int | None,
    options: dict[str, Any],
) -> ServedEngine:
    """Open an engine over vLLM; see `ServingOptions` for the options.

    Raises UsageError for a `device`, which vLLM finds by itself, and for bad options.
    """
    if device is not None:
        raise UsageError("vLLM finds its device by itself", field="engine.device")
    return ServedEngine(Vllm(), model=model, dtype=dtype, concurrency=concurrency, options=options)
