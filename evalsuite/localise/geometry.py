"""What divides the positions of a run's model: pools, cache blocks and the keys that are chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from evalsuite.paths import PACKAGE
from evalsuite.records import Run

MODELS = PACKAGE / "models"
# Pool and top-k of models that carry no configuration here, by a part of their name.
# Source: their config.json, index_kpool and index_topk.
KNOWN = {"glm-5.3-flash": (4, 2048), "deepseek-v3.2": (None, 2048)}
# The miniature's cache block; its suites cannot set another.
MINI_BLOCK = 16


class Geometry(NamedTuple):
    """Tokens in a pool, in a cache block, and selected ones; None where the run does not tell."""

    pool: int | None
    block: int | None
    topk: int | None


def geometry_of(run: Run) -> Geometry:
    """Return the geometry of the model that a run names, and of its engine's cache."""
    pool, topk = _selection(run.model)
    if run.engine.kind == "mini":
        return Geometry(pool, MINI_BLOCK, topk)
    block = run.engine.options.get("block_size")
    return Geometry(pool, block if type(block) is int and block > 0 else None, topk)


def _selection(model: str | None) -> tuple[int | None, int | None]:
    name = Path(model or "").name
    config = MODELS / name / "config.json"
    if name and config.is_file():
        told = json.loads(config.read_text())
        return told.get("index_kpool"), told.get("index_topk")
    return next((found for key, found in KNOWN.items() if key in name.lower()), (None, None))
