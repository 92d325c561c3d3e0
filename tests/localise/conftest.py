"""Cases of a failed run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cases import Case


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)
