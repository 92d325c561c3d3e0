"""A growing log file, read line by line as far as it goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class LogReader:
    """Feeds each whole new line of `path`, from byte `start` on, to `on_line`."""

    def __init__(self, path: Path, on_line: Callable[[str], None], start: int = 0) -> None:
        self._path = path
        self._on_line = on_line
        self._offset = start

    def update(self) -> None:
        """Read what was added since the last time; a missing file has nothing to say."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        for line in data[:whole].decode(errors="replace").splitlines():
            self._on_line(line)
