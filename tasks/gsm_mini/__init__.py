"""Grade-school word problems in GSM8K's format, told apart by equations and not by nouns."""

from __future__ import annotations

from gsm_mini.generate import DEFAULT_MIX, Mix, generate, iter_problems
from gsm_mini.problem import Problem
from gsm_mini.rows import held_out_questions

__all__ = [
    "DEFAULT_MIX",
    "Mix",
    "Problem",
    "generate",
    "held_out_questions",
    "iter_problems",
]
