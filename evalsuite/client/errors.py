"""What can go wrong with a server, by what has to follow."""

from __future__ import annotations

# Codes under which another attempt may help, where nothing of an answer has come.
TRY_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


class ClientError(RuntimeError):
    """Nothing more can be asked of this server: an arm ends here."""


class ServerLost(ClientError):
    """The server is gone, was started anew, or has stopped answering."""


class ServerRefused(ClientError):
    """The server answers, but refuses every request: key, model name or path."""


class AttemptFailed(Exception):
    """One attempt at one request failed. `kind` is what is counted."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class TryAgain(AttemptFailed):
    """Nothing had come yet. `wait_s` is what the server asked for, None where it did not."""

    def __init__(self, kind: str, message: str, wait_s: float | None = None) -> None:
        super().__init__(kind, message)
        self.wait_s = wait_s


class BrokenOff(AttemptFailed):
    """The connection ended after part of the answer had come."""


class NoAnswer(AttemptFailed):
    """The server refused this one request, or what it sent is no answer."""
