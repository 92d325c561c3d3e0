"""A server that this run starts, waits for, and ends to its last child."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evalsuite.engines.serving.guard import BY_SIGNAL
from evalsuite.paths import ROOT
from evalsuite.redact import redact

TAIL_LINES = 20
# Not by PYTHONPATH: the server must not find this project's folders among its own modules.
GUARD = (
    sys.executable,
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    "from evalsuite.engines.serving.guard import main; sys.exit(main(sys.argv[1:]))",
)


class ServerFailed(RuntimeError):
    """The server could not be started, or ended by itself; the message holds its last lines."""


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """One running server. Its output is appended to `log`."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str],
        folder: Path | None,
        grace_s: float,
        stop_command: Sequence[str] | None = None,
    ) -> None:
        self.log = log
        self._grace_s = grace_s
        self._stop_command = stop_command
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(redact(f"$ {shlex.join(command)}\n"))
        self.log_start = log.stat().st_size
        self._guard = subprocess.Popen(
            [*GUARD, "--log", str(log.resolve()), "--grace", str(grace_s), "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            cwd=folder,
            # A terminal's interrupt is ours to answer, not the server's.
            start_new_session=True,
        )

    @property
    def ended(self) -> int | None:
        """The exit code where the server has ended."""
        return self._guard.poll()

    def wait_until(self, ready: Callable[[], bool], limit_s: float) -> float:
        """Wait until `ready()`; returns the seconds it took.

        Raises ServerFailed where the server ends first, or is not ready after `limit_s`.
        """
        begun = time.monotonic()
        while not ready():
            took = time.monotonic() - begun
            if self.ended is not None:
                raise ServerFailed(self._told(f"{self._end()} while starting"))
            if took > limit_s:
                raise ServerFailed(self._told(f"was not ready after {limit_s:g} s"))
            time.sleep(0.25)
        return time.monotonic() - begun

    def why_lost(self, reason: str) -> ServerFailed:
        """Return the error that tells `reason` with what the process says of itself."""
        # The guard needs a moment to see that its server has ended.
        until = time.monotonic() + 2.0
        while self.ended is None and time.monotonic() < until:
            time.sleep(0.1)
        state = "still runs" if self.ended is None else self._end()
        return ServerFailed(self._told(f"{state}: {reason}"))

    def _end(self) -> str:
        code = self.ended or 0
        by_signal = code > BY_SIGNAL
        return f"was ended by signal {code - BY_SIGNAL}" if by_signal else f"ended with code {code}"

    def _told(self, what: str) -> str:
        return f"the server {what}; its last lines:\n{self.tail()}"

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Return the last lines of the log."""
        text = self.log.read_bytes()[self.log_start :].decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """End the server and all that it started."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(timeout=3 * self._grace_s + 30.0)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        if self._stop_command:
            subprocess.run(self._stop_command, check=False, capture_output=True, timeout=120)
            self._stop_command = None
