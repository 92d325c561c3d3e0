"""Servers for tests: an aiohttp application in a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextmanager
def served(app: web.Application) -> Iterator[str]:
    """Serve `app` on a loopback port; yields its base URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    port = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def app_of(completions: Handler, **more: Handler) -> web.Application:
    """Return an application that answers `/v1/completions` (and chat) by `completions`."""
    app = web.Application()
    app.router.add_post("/v1/completions", completions)
    app.router.add_post("/v1/chat/completions", more.pop("chat", completions))
    app.router.add_get("/v1/models", more.pop("models", _models))
    for name, handler in more.items():
        app.router.add_route("*", f"/{name}", handler)
    return app


async def _models(request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "tiny", "max_model_len": 4096}]})


def events(*chunks: dict[str, Any] | str) -> bytes:
    """Return the chunks as server-sent events."""
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


def piece(text: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one event of a completion's stream."""
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}


async def stream(request: web.Request, *blocks: bytes, pause_s: float = 0.0) -> web.StreamResponse:
    """Send `blocks` as one event stream, whole, and `pause_s` between them."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for block in blocks:
        await response.write(block)
        await asyncio.sleep(pause_s)
    await response.write_eof()
    return response
