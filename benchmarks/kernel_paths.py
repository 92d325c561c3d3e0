"""Imported first by the kernel benchmarks: they also run where the project is not installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
