"""Which commit of this project made a run."""

from __future__ import annotations

import subprocess
from pathlib import Path

from evalsuite.paths import ROOT
from evalsuite.records import Settings


def checkout(root: Path = ROOT) -> Settings:
    """Return `commit` and `dirty` (tracked files with changes) of the git checkout at `root`.

    Empty where `root` is no checkout of its own: an installed package has its version only.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    commit = _git(root, "rev-parse", "HEAD")
    if top is None or commit is None or Path(top).resolve() != root.resolve():
        return {}
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
