"""Finding the program that serves, and asking whether a server is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from evalsuite.client import Client, ServerLost
from evalsuite.errors import UsageError
from evalsuite.redact import redact


def found_program(command: list[str], folder: str | None) -> list[str]:
    """Return the command with its program's path. Raises UsageError where there is none."""
    field = "engine.options.command"
    program = os.path.abspath(command[0]) if os.sep in command[0] else shutil.which(command[0])
    if program is None or not os.access(program, os.X_OK):
        raise UsageError("no such program", file=command[0], field=field)
    if folder is not None and not Path(folder).is_dir():
        raise UsageError("no such folder", file=folder, field="engine.options.cwd")
    return [program, *command[1:]]


def readiness(client: Client, url: str) -> Callable[[], bool]:
    """Return what tells whether the server at `url` answers and has loaded its model."""

    def ready() -> bool:
        try:
            return all(
                client.fetch(url + path, timeout_s=5.0).status == 200
                for path in ("/health", "/v1/models")
            )
        except ServerLost:
            return False

    return ready


def page_fetcher(client: Client, url: str) -> Callable[[str], str | None]:
    """Return what fetches pages of a running server; it raises UsageError where nobody answers."""

    def fetch(path: str) -> str | None:
        try:
            page = client.fetch(url + path)
        except ServerLost as problem:
            raise UsageError(redact(str(problem)), field="engine.options.url") from None
        return page.text if page.status == 200 else None

    return fetch
