"""DeepSeek-V3's architecture: MLA with rope, grouped sigmoid routing, one MTP layer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from evalsuite.train.architecture import Architecture
from evalsuite.train.dsv3.config import parse_config
from evalsuite.train.dsv3.loss import Dsv3Model
from evalsuite.train.dsv3.names import copied_tensors, tensor_specs

__all__ = ["FILE", "architecture"]

FILE = Path(__file__).with_name("architecture.json")
DRAFT_ROWS = 256


def architecture(raw: dict[str, Any], where: str) -> Architecture:
    """Read a configuration. Raises UsageError naming `where` and the field."""
    config = parse_config(raw, where)

    def build(params: Mapping[str, Tensor], blind: bool) -> Dsv3Model:
        return Dsv3Model(params, config, blind)

    return Architecture(
        name="dsv3_mini",
        config=config,
        specs=tuple(tensor_specs(config)),
        build=build,
        rows=DRAFT_ROWS,
        copies=copied_tensors(config),
    )
