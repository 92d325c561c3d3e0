"""The architectures that can be trained, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evalsuite.train import dsv3, glm53
from evalsuite.train.architecture import Architecture


class Known(NamedTuple):
    """Where the configuration lies and what reads it."""

    file: Path
    read: Callable[[dict[str, Any], str], Architecture]


ARCHITECTURES = {
    "glm53_mini": Known(glm53.FILE, glm53.architecture),
    "dsv3_mini": Known(dsv3.FILE, dsv3.architecture),
}
