"""The fake engine, in a process that dies once in the arm that its options name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import fake_engine
from fake_engine import FakeEngine, FakeSession

from evalsuite.arms import Arm
from evalsuite.engines.base import Answer, Request


class DyingSession(FakeSession):
    """Ends the whole process at the first request, unless that was done before."""

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        mark = Path(str(self.options["mark"]))
        if self.arm.name == self.options["dies"] and not mark.exists():
            mark.touch()
            os._exit(1)
        super().generate(requests, on_answer)


class DyingEngine(FakeEngine):
    """The engine; options: dies (an arm's name), mark (a file that is there afterwards)."""

    def start(self, arm: Arm) -> FakeSession:
        return DyingSession(arm, self.options, self.answers)


def open_engine(**settings: object) -> fake_engine.FakeEngine:
    """Open it as `dying_engine:open_engine`."""
    return DyingEngine(dict(settings["options"]))  # type: ignore[call-overload]
