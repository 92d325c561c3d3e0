"""Where the project's own files lie."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE.parent
SUITES = ROOT / "suites"
TASKS = ROOT / "tasks"
BASELINES = ROOT / "baselines"
RUNS = Path("runs")
EMBEDDED_MODEL = PACKAGE / "models" / "glm53_mini"
