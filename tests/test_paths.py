"""Where runs lie when nobody says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalsuite import paths


def test_two_runs_of_one_second_lie_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "RUNS", tmp_path)
    taken = set()
    # More than the clock can tell apart, unless it strikes between each two of them.
    for _ in range(5):
        folder = paths.new_folder("glm53-mini")
        assert folder.parent == tmp_path and "-glm53-mini" in folder.name
        assert not folder.exists()
        folder.mkdir()
        taken.add(folder)
    assert len(taken) == 5
