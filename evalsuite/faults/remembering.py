"""An engine whose sessions stay open and remember, so that a run can grow item by item.

A run over more items asks for the earlier ones again; they are answered from memory, with the
times that they took. What the sessions count goes on over all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evalsuite.arms import Arm
from evalsuite.engines.base import Answer, ArmSession, Engine, EngineDescription, Request
from evalsuite.records import Evidence


class RememberingSession:
    """One arm's session, warm once, with the answers that it gave."""

    def __init__(self, session: ArmSession) -> None:
        self._session = session
        self._warm = False
        self._answers: dict[str, list[Answer]] = {}

    def warm_up(self) -> None:
        """Warm up the session the first time."""
        if not self._warm:
            self._session.warm_up()
            self._warm = True

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        """Answer from memory what was asked before, and ask the session for the rest."""
        asked = [request for request in requests if request.request_id not in self._answers]
        for request in requests:
            for answer in self._answers.get(request.request_id, ()):
                on_answer(answer)

        def take(answer: Answer) -> None:
            self._answers.setdefault(answer.request_id, []).append(answer)
            on_answer(answer)

        if asked:
            self._session.generate(asked, take)

    def evidence(self) -> Evidence:
        """The session's."""
        return self._session.evidence()

    def close(self) -> None:
        """Stay open; the engine closes all at its end."""

    def end(self) -> None:
        """Close the session."""
        self._session.close()


class RememberingEngine:
    """An engine that opens each arm once. `requests` are all that will ever be asked."""

    interleaves = True

    def __init__(self, engine: Engine, requests: Sequence[Request]) -> None:
        self._engine = engine
        self._requests = requests
        self._sessions: dict[str, RememberingSession] = {}
        engine.check(requests)

    @property
    def name(self) -> str:
        """The engine's."""
        return self._engine.name

    def check(self, requests: Sequence[Request]) -> None:
        """Nothing: all requests are checked before a session is opened, which they size."""

    def start(self, arm: Arm) -> RememberingSession:
        """The arm's session, opened at first use."""
        if arm.name not in self._sessions:
            # Another set of sessions on the same engine may have asked for shorter requests since.
            self._engine.check(self._requests)
            self._sessions[arm.name] = RememberingSession(self._engine.start(arm))
        return self._sessions[arm.name]

    def describe(self) -> EngineDescription:
        """The engine's."""
        return self._engine.describe()

    def close(self) -> None:
        """Close every session; the engine itself belongs to whoever opened it."""
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()
