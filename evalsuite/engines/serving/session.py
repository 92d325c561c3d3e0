"""One arm of a server, asked over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from evalsuite.arms import Arm
from evalsuite.client import Client, ClientError, Prompt, Reply, ServerLost
from evalsuite.engines.base import Answer, Request
from evalsuite.engines.serving.dialect import Dialect, Observed, Target, Told
from evalsuite.engines.serving.logs import LogReader
from evalsuite.engines.serving.process import ServerProcess
from evalsuite.engines.serving.prometheus import Metrics, instance
from evalsuite.records import Evidence

WARM_UP_TOKENS = 16
LOG_WAIT_S = 4.0
MADE_UP = Request("warm-up", "Question: Ann has 3 hens and 4 ducks.\nAnswer:", WARM_UP_TOKENS, ())


class ServedSession:
    """Asks one server; see `ArmSession`."""

    def __init__(
        self,
        dialect: Dialect,
        target: Target,
        client: Client,
        base_url: str,
        served: str,
        examples: Sequence[Request],
        *,
        encode: Callable[[str], tuple[int, ...]] | None,
        server: ServerProcess | None,
        log: Path | None,
        own_log: Path | None,
    ) -> None:
        self.arm: Arm = target.arm
        self._dialect, self._target = dialect, target
        self._client, self._base, self._served = client, base_url, served
        self._examples = list(examples) or [MADE_UP]
        self._encode = encode
        self._server = server
        self._own_log = own_log
        self._told = Told()
        self._view = None if log is None else dialect.log_view()
        self._reader = None
        if log is not None and self._view is not None:
            start = 0 if server is None else server.log_start
            self._reader = LogReader(log, self._view.on_line, start)
        self._version = dialect.version(self._page)
        self._pages = {page: self._page(page) for page in dialect.pages}
        self._before = self._after = self._metrics()
        self._instance = self._present()
        self._closed = False
        self._waited = False

    def warm_up(self) -> None:
        """Ask some of the questions for a few tokens, then begin to count."""
        count = self._target.options.warm_up
        requests = [
            replace(self._examples[n % len(self._examples)], request_id=f"warm-up {n}",
                    max_tokens=WARM_UP_TOKENS)
            for n in range(count)
        ]  # fmt: skip
        failed: list[str] = []
        self._ask([self._prompt(request) for request in requests], lambda reply: failed.append(
            reply.error) if reply.error else None)  # fmt: skip
        if failed:
            raise ServerLost(f"{len(failed)} of {count} warm-up requests failed: {failed[0]}")
        self._told = Told()
        self._before = self._after = self._metrics()
        if self._reader is not None:
            self._reader.update()

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        """Answer every request, in the order in which they finish.

        Raises ClientError or ServerFailed where the server is lost; what came until then was
        passed on.
        """

        def take(reply: Reply) -> None:
            self._told.add(reply)
            on_answer(_answer(reply))

        self._ask([self._prompt(request) for request in requests], take)
        if self._present() != self._instance:
            raise ServerLost("the server was started anew while it was being asked")

    def _ask(self, prompts: Sequence[Prompt], take: Callable[[Reply], None]) -> None:
        try:
            self._client.ask(prompts, take)
        except ServerLost as problem:
            if self._server is None:
                raise
            raise self._server.why_lost(str(problem)) from problem

    def _prompt(self, request: Request) -> Prompt:
        ids = request.prompt_ids
        if ids is None and self._encode is not None and request.messages is None:
            ids = self._encode(request.prompt)
        return Prompt(
            request.request_id, request.prompt, request.max_tokens, request.stop, ids,
            request.messages,
        )  # fmt: skip

    def evidence(self) -> Evidence:
        """What happened since the warm-up, as far as this kind of server tells."""
        now = self._metrics()
        # A server that has ended tells nothing any more: what it said last stands.
        self._after = now if now is not None else self._after
        self._read_log()
        seen = Observed(
            self._target, self._before, self._after, self._pages, self._view, self._told,
            self._served,
        )  # fmt: skip
        return self._dialect.evidence(seen, self._version)

    def _read_log(self) -> None:
        """Read on; the first time, wait for what the server writes only once in a while."""
        if self._reader is None or self._view is None:
            return
        self._reader.update()
        until = time.monotonic() + LOG_WAIT_S
        while self._told.answers and self._dialect.awaits(self._target, self._view):
            if self._waited or time.monotonic() >= until:
                self._waited = True
                return
            time.sleep(0.1)
            self._reader.update()

    def close(self) -> None:
        """Leave the server; end it where it was started here."""
        if self._closed:
            return
        self._closed = True
        if self._own_log is not None:
            self._own_log.parent.mkdir(parents=True, exist_ok=True)
            with self._own_log.open("a", encoding="utf-8") as file:
                file.write(f"client: {self._client.counts}\n")
        self._client.close()
        if self._server is not None:
            self._server.stop()

    def _page(self, path: str) -> str | None:
        try:
            page = self._client.fetch(self._base + path)
        except ServerLost:
            return None
        return page.text if page.status == 200 else None

    def _metrics(self) -> Metrics | None:
        text = self._page("/metrics")
        return None if text is None else Metrics(text)

    def _present(self) -> str | None:
        text = self._page("/metrics")
        return None if text is None else instance(text)


def _answer(reply: Reply) -> Answer:
    return Answer(
        request_id=reply.request_id,
        text=reply.text,
        token_ids=reply.token_ids,
        margins=reply.margins,
        finish_reason=reply.finish,
        prompt_tokens=reply.prompt_tokens,
        output_tokens=reply.output_tokens,
        started=reply.started,
        ended=reply.ended,
        ttft_s=reply.ttft_s,
        drafted=reply.drafted,
        accepted=reply.accepted,
        error=reply.error,
    )


__all__ = ["ClientError", "ServedSession"]
