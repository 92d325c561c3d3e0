"""lm-eval itself: whether it is there, its version, and what its generation arguments mean."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from evalsuite.errors import UsageError
from evalsuite.paths import TASKS

DISTRIBUTION = "lm_eval"
MADE_FOR = "0.4.13"


class Generation(NamedTuple):
    """Stop strings in the task's order, and the token budget of one answer."""

    stops: tuple[str, ...]
    max_tokens: int


def library_version() -> str:
    """Return lm-eval's version. Raises UsageError where it is not installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        raise UsageError(
            f"lm-eval is not installed in this environment; the tasks need lm-eval {MADE_FOR} "
            "(make setup)"
        ) from None


def make_ready() -> None:
    """Do once what every use of lm-eval's tasks here needs. Raises UsageError where it is missing.

    `tasks/` becomes importable, and lm-eval's templates are compiled once instead of anew for every
    item, which is nearly all of the time that building prompts takes.
    """
    library_version()
    if str(TASKS) not in sys.path:
        sys.path.append(str(TASKS))
    import lm_eval.utils

    compile_template = lm_eval.utils.env.from_string
    if not hasattr(compile_template, "cache_info"):
        lm_eval.utils.env.from_string = lru_cache(maxsize=256)(compile_template)


def quiet() -> None:
    """Keep lm-eval's and datasets' notices off the terminal; errors stay."""
    for name in ("lm_eval", "lm-eval", "datasets", "evaluate"):
        logging.getLogger(name).setLevel(logging.ERROR)


def read_generation(arguments: Mapping[str, Any], where: str) -> Generation:
    """Return stops and budget of a task's `generation_kwargs`.

    `where` names the task in errors. Raises UsageError where sampling is asked for: every arm
    decodes greedily, and two arms that sample cannot be compared token by token.
    """
    from lm_eval.defaults import DEFAULT_MAX_GEN_TOKS
    from lm_eval.models.utils import normalize_gen_kwargs

    settled: dict[str, Any] = dict(normalize_gen_kwargs(dict(arguments), DEFAULT_MAX_GEN_TOKS))
    if settled.get("do_sample") or settled.get("temperature", 0.0) != 0.0:
        raise UsageError(f"task {where} samples; arms decode greedily", field="generation_kwargs")
    known = {"until", "max_gen_toks", "do_sample", "temperature"}
    unknown = sorted(settled.keys() - known)
    if unknown:
        raise UsageError(
            f"task {where} asks for {', '.join(unknown)}, which no engine here knows",
            field="generation_kwargs",
        )
    return Generation(tuple(settled["until"]), int(settled["max_gen_toks"]))
