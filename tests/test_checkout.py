"""The commit that made a run, read from git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evalsuite.checkout import checkout


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    (root / "code.py").write_text("x = 1\n")
    git(root, "add", "code.py")
    git(root, "commit", "-q", "-m", "first")
    return root


def test_a_clean_checkout_tells_its_commit(repository: Path) -> None:
    assert checkout(repository) == {"commit": git(repository, "rev-parse", "HEAD"), "dirty": False}


def test_a_changed_file_makes_it_dirty_and_a_new_one_does_not(repository: Path) -> None:
    (repository / "notes.txt").write_text("new")
    assert checkout(repository)["dirty"] is False
    (repository / "code.py").write_text("x = 2\n")
    assert checkout(repository)["dirty"] is True


def test_a_folder_inside_someone_elses_checkout_is_not_that_commit(repository: Path) -> None:
    inner = repository / "site-packages"
    inner.mkdir()
    assert checkout(inner) == {}


def test_no_checkout_at_all(tmp_path: Path) -> None:
    assert checkout(tmp_path) == {}
