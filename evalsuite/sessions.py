"""The open arms of one run, and what became of those that failed."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from evalsuite.arms import Arm
from evalsuite.engines.base import ArmSession, Engine
from evalsuite.errors import EvalsuiteError
from evalsuite.redact import redact


class ArmSessions:
    """Starts arms on demand and lets one fail without the others.

    `failed` has the reason by arm. Tracebacks are kept until `write_logs`.
    """

    def __init__(
        self, engine: Engine, on_start: Callable[[str], None], on_note: Callable[[str], None]
    ) -> None:
        self.failed: dict[str, str] = {}
        self._engine = engine
        self._on_start = on_start
        self._on_note = on_note
        self._open: dict[str, ArmSession] = {}
        self._tracebacks: dict[str, str] = {}

    def get(self, arm: Arm) -> ArmSession | None:
        """Return the warm session of `arm`, None where it failed.

        Raises UsageError where the engine refuses the arm: a configuration to be changed.
        """
        if arm.name in self.failed:
            return None
        if arm.name not in self._open:
            self._on_start(arm.name)
            with self.failing(arm.name):
                session = self._engine.start(arm)
                self._open[arm.name] = session
                session.warm_up()
        return None if arm.name in self.failed else self._open[arm.name]

    def end(self, name: str) -> None:
        """Close one arm's session, if it is open."""
        session = self._open.pop(name, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """Close all sessions."""
        for name in list(self._open):
            self.end(name)

    @contextlib.contextmanager
    def failing(self, name: str) -> Iterator[None]:
        """Turn whatever an engine raises into the end of this one arm; our own errors pass."""
        try:
            yield
        except EvalsuiteError:
            raise
        except Exception as problem:
            self._tracebacks[name] = redact(traceback.format_exc())
            self.fail(name, f"{type(problem).__name__}: {redact(str(problem))}")

    def fail(self, name: str, reason: str) -> None:
        """Leave an arm behind."""
        self.failed[name] = reason
        self._on_note(f"{name} failed: {reason}")

    def write_logs(self, folder: Path) -> None:
        """Append the tracebacks of failed arms to `<folder>/<arm>/engine.log`."""
        for name, text in self._tracebacks.items():
            (folder / name).mkdir(exist_ok=True)
            with (folder / name / "engine.log").open("a", encoding="utf-8") as file:
                file.write(text)
        self._tracebacks.clear()
