"""Errors that reach the user, each with the exit code it stands for."""

from __future__ import annotations

import os
from pathlib import Path

EXIT_PASS = 0
EXIT_FAIL = 1
EXIT_USAGE = 2
EXIT_INCOMPLETE = 3


class EvalsuiteError(Exception):
    """An error told in one line: `file:line: field: what is wrong`.

    `file`, `line` (from 1) and `field` are optional; what is known is put before the message.
    """

    exit_code = EXIT_FAIL

    def __init__(
        self,
        message: str,
        *,
        file: str | os.PathLike[str] | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.file = None if file is None else Path(file)
        self.line = line
        self.field = field
        self.message = message
        super().__init__(self._joined())

    def _joined(self) -> str:
        place = "" if self.file is None else str(self.file)
        if self.line is not None:
            place = f"{place}:{self.line}" if place else f"line {self.line}"
        parts = [part for part in (place, self.field, self.message) if part]
        return ": ".join(parts)


class UsageError(EvalsuiteError):
    """Bad input or configuration: the user has to change something. Exit code 2."""

    exit_code = EXIT_USAGE


class RunIncomplete(EvalsuiteError):
    """The run could not be brought to its end, or cannot be judged to its end. Exit code 3."""

    exit_code = EXIT_INCOMPLETE


class DamagedRun(RunIncomplete):
    """A file of a run folder is missing, torn or does not decode. Exit code 3."""
