"""The client as synchronous callers see it: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import aiohttp

from evalsuite.client.errors import ClientError, ServerLost
from evalsuite.client.handover import Handover
from evalsuite.client.pool import Pool
from evalsuite.client.settings import ClientSettings, Counts, Prompt, Reply

T = TypeVar("T")
JSON = {"Content-Type": "application/json"}


class Fetched(tuple[int, str]):
    """Status and text of a page."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self[0]

    @property
    def text(self) -> str:
        """The body."""
        return self[1]


class Client:
    """Asks one server; connections are kept until `close`."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.counts = Counts()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="client", daemon=True)
        self._thread.start()
        self._session: aiohttp.ClientSession = self._call(self._opened())

    async def _opened(self) -> aiohttp.ClientSession:
        settings = self.settings
        headers = dict(JSON)
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
            headers=headers,
            # Cookies are looked up for every request, and no such server sets any.
            cookie_jar=aiohttp.DummyCookieJar(),
            # A large answer with log-probabilities comes in pieces larger than the default.
            read_bufsize=2**18,
        )

    def ask(self, prompts: Sequence[Prompt], on_reply: Callable[[Reply], None]) -> None:
        """Answer every prompt once; `on_reply` is called in the caller's thread.

        Raises ClientError where nothing more can be asked of the server.
        """
        handover = Handover(self._loop)
        pool = Pool(self._session, self.settings, self.counts, handover.put)
        future = asyncio.run_coroutine_threadsafe(pool.ask(prompts), self._loop)
        future.add_done_callback(lambda _: handover.end())
        try:
            for reply in handover:
                on_reply(reply)
        finally:
            future.cancel()
        future.result()

    def fetch(self, url: str, timeout_s: float = 10.0, post: bool = False) -> Fetched:
        """Return what stands at `url`. Raises ServerLost where nobody answers there."""
        try:
            return self._call(self._fetched(url, timeout_s, post))
        except (aiohttp.ClientError, ConnectionError, TimeoutError, ValueError) as fault:
            told = f"{type(fault).__name__}: {fault}"
            raise ServerLost(self.settings.scrub(f"nothing answers at {url}: {told}")) from None

    async def _fetched(self, url: str, timeout_s: float, post: bool) -> Fetched:
        limit = aiohttp.ClientTimeout(total=timeout_s)
        method = "POST" if post else "GET"
        async with self._session.request(method, url, timeout=limit) as response:
            return Fetched((response.status, await response.text(errors="replace")))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Close connections and thread."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(ClientError):
            self._call(self._session.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10.0)
        if not self._thread.is_alive():
            self._loop.close()
