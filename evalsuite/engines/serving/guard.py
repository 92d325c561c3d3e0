"""Runs a server for as long as whoever asked for it lives.

The guard reads its standard input. When that ends, because the asking process closed it, crashed or
was killed, the server's whole process group is ended, and every descendant that left the group. The
server's output goes to the log without secrets.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO

from evalsuite.redact import redact

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)
SHORTEST_SECRET = 8
# Exit codes above this tell the signal that ended the server, as a shell's do.
BY_SIGNAL = 128


def main(arguments: list[str]) -> int:
    """Run `--log FILE --grace S -- COMMAND…`; returns the server's exit code, as a shell would."""
    _, log, _, grace, _, *command = arguments
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ending = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ending.set()

    signal.signal(signal.SIGTERM, end)
    try:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    except OSError as problem:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{command[0]} cannot be started: {problem.strerror}\n")
        return 127
    assert server.stdout is not None
    reader = threading.Thread(target=_copy, args=(server.stdout, Path(log)), daemon=True)
    reader.start()
    threading.Thread(target=_until_closed, args=(ending,), daemon=True).start()
    while server.poll() is None and not ending.is_set():
        ending.wait(0.2)
    _end(server, float(grace))
    reader.join(timeout=5.0)
    code = server.returncode
    return code if code >= 0 else BY_SIGNAL - code


def _prctl(option: int, value: int) -> None:
    """Ask the Linux kernel; elsewhere there is nothing to ask."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _until_closed(ending: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    ending.set()


def _copy(source: IO[bytes], log: Path) -> None:
    secrets = [
        value
        for name, value in os.environ.items()
        if SECRET_VARIABLE.search(name) and len(value) >= SHORTEST_SECRET
    ]
    with log.open("a", encoding="utf-8") as file:
        for line in source:
            text = line.decode(errors="replace")
            for secret in secrets:
                text = text.replace(secret, "***")
            file.write(redact(text))
            file.flush()


def _end(server: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the group, politely first; a stopped process has to go on before it can end."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        _signal_group(server.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(grace_s)
    until = time.monotonic() + grace_s
    while _group_lives(server.pid) and time.monotonic() < until:
        _reap()
        time.sleep(0.05)
    _signal_group(server.pid, signal.SIGKILL)
    server.wait()
    # What left the group became our own child when its parent ended.
    for _ in range(100):
        strays = _children()
        if not strays:
            return
        for stray in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray, signal.SIGKILL)
        _reap()
        time.sleep(0.02)


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _children() -> list[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(word) for word in path.read_text().split()]
    except OSError:
        return []
