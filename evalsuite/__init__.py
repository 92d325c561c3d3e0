"""Accuracy-regression gate for LLM inference engines."""

import os

# Must be set before torch loads OpenMP. Spinning worker threads make a small model tens of times
# slower as soon as another process wants one of the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"
