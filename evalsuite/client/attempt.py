"""One attempt at one request over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp
import msgspec
from yarl import URL

from evalsuite.client.assembly import Assembly
from evalsuite.client.errors import TRY_AGAIN, BrokenOff, NoAnswer, ServerRefused, TryAgain
from evalsuite.client.events import Events
from evalsuite.client.wire import Chunk, decode_chunk

REFUSES_ALL = frozenset({401, 403, 404, 405, 501})
SHOWN = 300
READ_OFF_S = 1.0
# What aiohttp raises for a connection that cannot be made or does not hold.
CONNECTION_FAULTS = (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError)


async def attempt(
    session: aiohttp.ClientSession,
    url: URL,
    body: bytes,
    assembly: Assembly,
    *,
    stream: bool,
    progress: Callable[[], None],
) -> None:
    """Send `body` to `url` and add to `assembly` what comes; `progress` is called as bytes come.

    Raises TryAgain where nothing came yet and another attempt may help, BrokenOff where the
    connection ended inside the answer, NoAnswer where this request cannot be answered, and
    ServerRefused where no request will be.
    """
    received = False
    try:
        async with session.post(url, data=body, allow_redirects=False) as response:
            progress()
            if response.status != 200:
                await _refusal(response)
            received = True
            if stream:
                await _streamed(response, assembly, progress)
            else:
                assembly.add(_decoded(await response.read()))
                progress()
    except CONNECTION_FAULTS as fault:
        told = f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
        if assembly.started or (received and not stream):
            told = f"the connection ended inside the answer: {told}"
            raise BrokenOff("broken off", told) from None
        raise TryAgain("connection", told) from None


async def _refusal(response: aiohttp.ClientResponse) -> None:
    status = response.status
    told = f"HTTP {status}: {(await response.text(errors='replace')).strip()[:SHOWN]}"
    if status in TRY_AGAIN:
        raise TryAgain(str(status), told, _wait(response.headers.get("Retry-After")))
    if status in REFUSES_ALL:
        raise ServerRefused(told)
    raise NoAnswer(str(status), told)


def _wait(header: str | None) -> float | None:
    try:
        return None if header is None else min(max(float(header), 0.0), 60.0)
    except ValueError:
        return None


async def _streamed(
    response: aiohttp.ClientResponse, assembly: Assembly, progress: Callable[[], None]
) -> None:
    events = Events()
    content = response.content
    while not events.ended and (block := await content.readany()):
        progress()
        for data in events.feed(block):
            assembly.add(_decoded(data))
    if events.ended:
        await _read_off(content)
        return
    for data in events.rest():
        assembly.add(_decoded(data))
    if assembly.finish_reason is None:
        if not assembly.started:
            raise TryAgain("connection", "the stream ended before the answer began")
        raise BrokenOff("broken off", "the stream ended inside the answer")


async def _read_off(content: aiohttp.StreamReader) -> None:
    """Read what the server sends after the last event, so that the connection can be kept. The
    answer is whole by then: what fails here costs the connection alone."""
    if content.at_eof():
        return
    with contextlib.suppress(*CONNECTION_FAULTS):
        async with asyncio.timeout(READ_OFF_S):
            while await content.readany():
                pass


def _decoded(data: bytes) -> Chunk:
    try:
        return decode_chunk(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        shown = data[:80].decode(errors="replace")
        told = f"the server sent what cannot be read ({problem}): {shown!r}"
        raise NoAnswer("not JSON", told) from None
