"""A completion server that costs next to nothing: `python _instant_server.py PORT [LOW HIGH]`.

It answers at once, or holds each answer for a time drawn evenly from LOW to HIGH seconds and tells
in the answer's text how long it really held it, so that what a client adds can be computed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time

ANSWER = " She sells 16 - 3 - 4 = 9 eggs a day. She makes 9 * 2 = $18 a day.\n#### 18"
LISTED = b'{"object":"list","data":[{"id":"instant","object":"model"}]}'


def whole(held: float) -> bytes:
    """Return a completion that is sent in one piece."""
    choice = {"index": 0, "text": f"{ANSWER} held={held:.6f}", "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": USAGE}).encode()


def streamed(held: float) -> bytes:
    """Return a completion as a stream of three events."""
    choice = {"index": 0, "text": f"{ANSWER} held={held:.6f}", "finish_reason": "stop"}
    chunks = [{"choices": [choice]}, {"choices": [], "usage": USAGE}]
    return b"".join(
        b"data: %s\n\n" % part.encode() for part in [*map(json.dumps, chunks), "[DONE]"]
    )


USAGE = {"prompt_tokens": 1000, "completion_tokens": 40, "total_tokens": 1040}


class Connection(asyncio.Protocol):
    """One kept-alive connection that asks one thing after the other."""

    limits = (0.0, 0.0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        head, found, body = self.data.partition(b"\r\n\r\n")
        if not found:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            if line[:15].lower() == b"content-length:":
                length = int(line[15:])
        if len(body) < length:
            return
        self.data = body[length:]
        if head.startswith(b"GET"):
            self._send(b"application/json", LISTED)
            return
        kind = streamed if b'"stream":true' in body[:length].replace(b" ", b"") else whole
        begun = time.perf_counter()
        low, high = self.limits
        if high == 0.0:
            self._answer(kind, begun)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(random.uniform(low, high), self._answer, kind, begun)

    def _answer(self, kind, begun: float) -> None:  # type: ignore[no-untyped-def]
        name = b"text/event-stream" if kind is streamed else b"application/json"
        self._send(name, kind(time.perf_counter() - begun))

    def _send(self, kind: bytes, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
        self.transport.write(head % (kind, len(body)) + body)


async def main(port: int, low: float, high: float) -> None:
    """Serve until killed."""
    Connection.limits = (low, high)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    words = [*sys.argv[1:], "0", "0"]
    asyncio.run(main(int(words[0]), float(words[1]), float(words[2])))
