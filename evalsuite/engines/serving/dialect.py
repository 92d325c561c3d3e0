"""What tells one kind of server from another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from evalsuite.arms import Arm
from evalsuite.client import Reply, Style
from evalsuite.engines.serving.options import ServingOptions
from evalsuite.engines.serving.prometheus import Metrics
from evalsuite.records import Evidence, Settings

# Returns the text of a page of the server, None where there is no such page.
Fetch = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Target:
    """What a server is to serve."""

    arm: Arm
    options: ServingOptions
    model: str | None
    dtype: str | None


@dataclass(slots=True)
class Told:
    """What the answers of one arm themselves tell of speculation, summed up."""

    answers: int = 0
    drafted: int = 0
    histogram: Counter[int] = field(default_factory=Counter)
    with_histogram: int = 0

    def add(self, reply: Reply) -> None:
        """Take one answer."""
        if reply.error is not None:
            return
        self.answers += 1
        if reply.accepted_histogram is not None:
            self.with_histogram += 1
            self.drafted += reply.drafted or 0
            self.histogram.update(dict(enumerate(reply.accepted_histogram)))

    @property
    def complete(self) -> bool:
        """Whether every answer told."""
        return 0 < self.answers == self.with_histogram


class LogView(Protocol):
    """What a server's log has said so far."""

    def on_line(self, line: str) -> None:
        """Take one line."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that is known of an arm: metrics at its start and now, pages, log, answers."""

    target: Target
    before: Metrics | None
    after: Metrics | None
    pages: Mapping[str, str | None]
    log: LogView | None
    told: Told
    served: str


class Dialect(Protocol):
    """One kind of server."""

    @property
    def name(self) -> str:
        """The engine's kind."""

    @property
    def style(self) -> Style:
        """How it is asked where no chat is wanted."""

    @property
    def pages(self) -> tuple[str, ...]:
        """Pages that tell its configuration."""

    @property
    def knows_token_ids(self) -> bool:
        """Whether it can be asked for token ids."""

    def command(self, target: Target, host: str, port: int) -> list[str]:
        """Return the words that start a server for `target`. Raises UsageError."""

    def environment(self, target: Target) -> dict[str, str]:
        """Return variables that a started server gets beside those of the suite."""

    def version(self, fetch: Fetch) -> str | None:
        """Return the version that a running server tells."""

    def installed(self, options: ServingOptions) -> str | None:
        """Return the version that would be started, None where it cannot be told before."""

    def log_view(self) -> LogView | None:
        """Return a reader of this kind's log lines."""

    def awaits(self, target: Target, log: LogView) -> bool:
        """Return whether the log of a started server has something yet to tell."""

    def asked(self, target: Target, served: str) -> Settings:
        """Return the settings that an arm asks for."""

    def evidence(self, seen: Observed, version: str | None) -> Evidence:
        """Return what shows that the arm took effect."""
