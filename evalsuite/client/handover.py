"""Replies on their way from the event loop's thread to the caller's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from queue import SimpleQueue

from evalsuite.client.settings import Reply


class Handover:
    """Takes replies one by one in the loop's thread and yields them in the caller's.

    What came in one turn of the loop goes over together: to wake a thread for each reply takes
    longer than to read it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batch: list[Reply] = []
        self._batches: SimpleQueue[list[Reply] | None] = SimpleQueue()

    def put(self, reply: Reply) -> None:
        """Take a reply."""
        if not self._batch:
            self._loop.call_soon(self._pass_on)
        self._batch.append(reply)

    def end(self) -> None:
        """Let the iteration end behind what was taken."""
        self._pass_on()
        self._batches.put(None)

    def _pass_on(self) -> None:
        batch, self._batch = self._batch, []
        if batch:
            self._batches.put(batch)

    def __iter__(self) -> Iterator[Reply]:
        while (batch := self._batches.get()) is not None:
            yield from batch
