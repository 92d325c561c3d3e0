"""Many requests at once: bounded, repeated where that is safe, watched for progress."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp
from yarl import URL

from evalsuite.client.assembly import Assembly
from evalsuite.client.attempt import attempt
from evalsuite.client.errors import (
    AttemptFailed,
    BrokenOff,
    ServerLost,
    ServerRefused,
    TryAgain,
)
from evalsuite.client.settings import ClientSettings, Counts, Prompt, Reply
from evalsuite.client.wire import PATHS, body_of

LONGEST_WAIT_S = 8.0
# How long a server that broke a connection gets to show that it is still there.
ALIVE_S = 5.0
# How long connecting is tried again; a full queue is worth more patience than a closed port.
UNREACHABLE_S = 15.0


class Pool:
    """Asks all prompts of one call. One pool serves one call; the connections outlive it."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        settings: ClientSettings,
        counts: Counts,
        on_reply: Callable[[Reply], None],
    ) -> None:
        self._session = session
        self._settings = settings
        self._counts = counts
        self._on_reply = on_reply
        self._url = URL(settings.base_url + PATHS[settings.style])
        self._last = time.monotonic()
        self._held: list[Reply] = []
        self._waiting: deque[Prompt] = deque()
        self._identity: str | None = None

    async def ask(self, prompts: Sequence[Prompt]) -> None:
        """Answer every prompt once, calling `on_reply` as each is answered.

        Raises ClientError where the server is lost, refuses everything, or answers nothing for
        `stall_s`; what was answered until then has been passed on.
        """
        self._waiting.extend(prompts)
        self._identity = await self._who()
        self._progress()
        workers = min(self._settings.concurrency, len(prompts))
        tasks = [asyncio.create_task(self._work()) for _ in range(workers)]
        watch = asyncio.create_task(self._watch())
        work = asyncio.gather(*tasks)
        both: list[asyncio.Future[Any]] = [work, watch]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            for reply in self._held:
                self._on_reply(reply)
        finally:
            for task in (*tasks, watch):
                task.cancel()
            await asyncio.gather(*tasks, work, watch, return_exceptions=True)

    def _progress(self) -> None:
        self._last = time.monotonic()

    async def _watch(self) -> None:
        limit = self._settings.stall_s
        while True:
            quiet = time.monotonic() - self._last
            if quiet >= limit:
                raise ServerLost(f"nothing came from the server for {quiet:.0f} s")
            await asyncio.sleep(min(limit - quiet, 1.0) + 0.001)

    async def _work(self) -> None:
        while self._waiting:
            reply = await self._answer(self._waiting.popleft())
            self._counts.requests += 1
            self._pass_on(reply)

    def _pass_on(self, reply: Reply) -> None:
        """Pass a reply on. Failures are held back until the next answer: where only failures come,
        the arm ends without having recorded them, and can be resumed."""
        self._progress()
        if reply.error is not None:
            self._held.append(reply)
            if len(self._held) >= self._settings.errors_in_a_row:
                raise ServerLost(f"{len(self._held)} requests failed in a row: {reply.error}")
            return
        for held in self._held:
            self._on_reply(held)
        self._held.clear()
        self._on_reply(reply)

    async def _answer(self, prompt: Prompt) -> Reply:
        settings, begun = self._settings, time.time()
        assembly = Assembly(prompt.request_id, begun)
        try:
            async with asyncio.timeout(settings.request_timeout_s):
                await self._attempts(prompt, assembly)
            return assembly.reply(settings.thinking, settings.stream)
        except TimeoutError:
            if assembly.started:
                self._counts.failures["cut by the time limit"] += 1
                return assembly.cut(settings.thinking)
            told = f"no answer within {settings.request_timeout_s:g} s"
            return self._failed(prompt, begun, "time limit", told)
        except AttemptFailed as problem:
            return self._failed(prompt, begun, problem.kind, str(problem))

    async def _attempts(self, prompt: Prompt, assembly: Assembly) -> None:
        settings = self._settings
        body = body_of(prompt, settings)
        begun_at = time.monotonic()
        wait = settings.retry_wait_s
        while True:
            try:
                await attempt(
                    self._session, self._url, body, assembly,
                    stream=settings.stream, progress=self._progress,
                )  # fmt: skip
                return
            except ServerRefused as problem:
                raise ServerRefused(settings.scrub(str(problem))) from None
            except TryAgain as problem:
                pause = problem.wait_s if problem.wait_s is not None else wait
                limit = settings.retry_s
                if problem.kind == "connection":
                    limit = min(limit, UNREACHABLE_S)
                if time.monotonic() + pause > begun_at + limit:
                    await self._must_be_there(str(problem))
                    raise
                self._counts.retries[problem.kind] += 1
                # Half of it by chance, so that requests refused together do not come together.
                await asyncio.sleep(pause * (0.5 + random.random() / 2))
                wait = min(wait * 2, LONGEST_WAIT_S)
            except BrokenOff as problem:
                await self._must_be_there(str(problem))
                raise

    async def _must_be_there(self, why: str) -> None:
        """Raise ServerLost unless the server answers now. Any HTTP answer will do."""
        settings = self._settings
        if settings.health_path is None:
            return
        until, told = time.monotonic() + ALIVE_S, ""
        while time.monotonic() < until:
            try:
                url = settings.base_url + settings.health_path
                limit = aiohttp.ClientTimeout(total=ALIVE_S)
                async with self._session.get(url, timeout=limit):
                    break
            except (aiohttp.ClientError, ConnectionError, TimeoutError) as fault:
                told = str(fault) or type(fault).__name__
                await asyncio.sleep(0.25)
        else:
            raise ServerLost(settings.scrub(f"the server is gone ({told}); before that: {why}"))
        if self._identity != await self._who():
            raise ServerLost(settings.scrub(f"the server was started anew; before that: {why}"))

    async def _who(self) -> str | None:
        """Return what tells this server process from the next, where it can be told."""
        settings = self._settings
        if settings.identity is None:
            return None
        try:
            limit = aiohttp.ClientTimeout(total=ALIVE_S)
            async with self._session.get(f"{settings.base_url}/metrics", timeout=limit) as page:
                return settings.identity(await page.text(errors="replace"))
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            return None

    def _failed(self, prompt: Prompt, begun: float, kind: str, told: str) -> Reply:
        self._counts.failures[kind] += 1
        return Reply(
            request_id=prompt.request_id,
            text=None,
            token_ids=None,
            margins=None,
            finish=None,
            prompt_tokens=None,
            output_tokens=None,
            started=begun,
            ended=time.time(),
            ttft_s=None,
            error=self._settings.scrub(told),
        )
