"""All families, in a fixed order, by name."""

from __future__ import annotations

from gsm_mini.families import (  # noqa: F401  each module registers its families on import
    ages,
    compare,
    fractions,
    groups,
    measures,
    money,
    rates,
    schedule,
)
from gsm_mini.problem import REGISTRY, Family

FAMILIES: dict[str, Family] = {name: REGISTRY[name] for name in sorted(REGISTRY)}
