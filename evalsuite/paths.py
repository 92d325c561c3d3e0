"""Where the project's own files lie."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
SUITES = ROOT / "suites"
TASKS = ROOT / "tasks"
BASELINES = ROOT / "baselines"
RUNS = Path("runs")
EMBEDDED_MODEL = PACKAGE / "models" / "glm53_mini"


def new_folder(name: str) -> Path:
    """Return `runs/<time>-<name>`, numbered where that is taken; makes nothing."""
    begun = RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    others = (begun.with_name(f"{begun.name}-{number}") for number in count(2))
    return begun if not begun.exists() else next(path for path in others if not path.exists())
