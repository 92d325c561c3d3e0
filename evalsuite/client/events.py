"""Server-sent events, cut out of a stream as its blocks come."""

from __future__ import annotations

END = b"[DONE]"


class Events:
    """The data of each event, joined where it spans several lines; `ended` after `[DONE]`."""

    def __init__(self) -> None:
        self.ended = False
        self._cut = b""
        self._lines: list[bytes] = []

    def feed(self, block: bytes) -> list[bytes]:
        """Take the next bytes of the stream; return the data of the events that they complete."""
        *lines, self._cut = (self._cut + block).split(b"\n")
        found: list[bytes] = []
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._lines.append(line[5:].strip())
            elif not line and self._lines:
                data = self._lines[0] if len(self._lines) == 1 else b"\n".join(self._lines)
                self._lines.clear()
                if data == END:
                    self.ended = True
                    break
                found.append(data)
        return found

    def rest(self) -> list[bytes]:
        """Return the data of an event that the stream's end cut short of its blank line."""
        cut, self._cut = self._cut, b""
        return [data for data in self.feed(cut + b"\n\n") if data]
