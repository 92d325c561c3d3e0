"""Grade-school word problems in GSM8K's format, made by equations and not by nouns."""

from __future__ import annotations

from gsm_mini.generate import DEFAULT_MIX, Mix, generate, iter_problems
from gsm_mini.problem import Problem

__all__ = [
    "DEFAULT_MIX",
    "Mix",
    "Problem",
    "generate",
    "iter_problems",
]
