"""An engine whose arms are servers, found running or started one after the other."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import evalsuite
from evalsuite.arms import Arm
from evalsuite.client import Client, ClientSettings
from evalsuite.engines.base import EngineDescription, Request
from evalsuite.engines.serving.connect import Listed, listed_models, served_name
from evalsuite.engines.serving.dialect import Dialect, Target
from evalsuite.engines.serving.gpus import local_hardware, used_memory, wait_until_free
from evalsuite.engines.serving.identity import chat_template, model_dtype, model_hash
from evalsuite.engines.serving.options import ServingOptions, read_options
from evalsuite.engines.serving.process import ServerProcess, free_port
from evalsuite.engines.serving.prometheus import instance
from evalsuite.engines.serving.prompts import encoder
from evalsuite.engines.serving.session import ServedSession
from evalsuite.engines.serving.starting import found_program, page_fetcher, readiness
from evalsuite.errors import UsageError
from evalsuite.records import Settings

HOST = "127.0.0.1"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DEFAULT_CONCURRENCY = 64
EXAMPLES = 16


class ServedEngine:
    """Serves the arms of a run; see `Engine`, and `ServingOptions` for the options.

    Raises UsageError for a `device`, which servers find by themselves, and for bad options.
    """

    def __init__(
        self,
        dialect: Dialect,
        *,
        model: str | None,
        dtype: str | None,
        device: str | None,
        concurrency: int | None,
        options: dict[str, Any],
    ) -> None:
        if device is not None:
            told = f"a server of engine {dialect.name} finds its device by itself"
            raise UsageError(told, field="engine.device")
        self._dialect = dialect
        self._model = os.path.abspath(model) if model and Path(model).is_dir() else model
        self._dtype = dtype
        self._options: ServingOptions = read_options(options)
        self._concurrency = concurrency or DEFAULT_CONCURRENCY
        self._key = self._options.api_key()
        self._logs: Path | None = None
        self._chat = False
        self._examples: list[Request] = []
        self._memory = None if self._options.attached else used_memory()
        self._open: list[ServedSession] = []
        self._listed: Listed | None = None
        self._check_parts()

    def _check_parts(self) -> None:
        if not self._options.attached and self._model is None:
            raise UsageError(
                "names no model to start a server for; give --model, or --url for a running one",
                field="engine.model",
            )

    @property
    def name(self) -> str:
        """The engine's kind."""
        return self._dialect.name

    @property
    def interleaves(self) -> bool:
        """Whether the arms have running servers of their own, all of them different."""
        urls = self._options.urls
        return self._options.url is None and len(urls) > 1 and len(set(urls.values())) == len(urls)

    def keep_logs(self, folder: Path) -> None:
        """Write `<arm>/engine.log` in `folder` from now on."""
        self._logs = folder

    def check(self, requests: Sequence[Request]) -> None:
        """Look at what will be asked; lengths are the server's own business."""
        self._chat = any(request.messages is not None for request in requests)
        self._examples = list(requests[:EXAMPLES])

    def describe(self) -> EngineDescription:
        """What run.json says. Raises UsageError where an attached server does not answer."""
        options, served = self._options, None
        if options.attached:
            client = Client(self._settings(options.any_url(), ""))
            try:
                found = listed_models(client, options.any_url())
                served = served_name(found, options.served_model, self._model, options.any_url())
                version = self._dialect.version(page_fetcher(client, options.any_url()))
            finally:
                client.close()
        else:
            version = self._dialect.installed(options)
        return EngineDescription(
            name=self._dialect.name,
            version=version,
            model=self._model or served,
            model_hash=model_hash(self._model, served, options.revision),
            dtype=model_dtype(self._model, self._dtype),
            hardware=self._hardware(),
            software={"evalsuite": evalsuite.__version__, self._dialect.name: version},
            concurrency=self._concurrency,
            chat_template=(chat_template(self._model) or "the server's own"),
        )

    def _hardware(self) -> Settings:
        options = self._options
        if options.hardware is not None:
            return dict(options.hardware)
        if not options.attached or urlsplit(options.any_url()).hostname in LOOPBACK:
            return local_hardware(options.devices)
        return {"device": "remote", "name": None, "count": options.devices}

    def start(self, arm: Arm) -> ServedSession:
        """Open a session: reach the arm's server, or start one and wait until it is ready.

        Raises UsageError for what the user has to change, and ServerFailed with the log's last
        lines where a server does not come up.
        """
        target = Target(arm, self._options, self._model, self._dtype)
        session = self._attach(target) if self._options.attached else self._launch(target)
        self._open.append(session)
        return session

    def _attach(self, target: Target) -> ServedSession:
        options = target.options
        url = options.url_of(target.arm)
        log = options.logs.get(target.arm.name, options.log)
        path = None if log is None else Path(log)
        if path is not None and not path.exists():
            raise UsageError("no such file", file=path, field="engine.options.logs")
        return self._session(target, url, None, path)

    def _launch(self, target: Target) -> ServedSession:
        options = target.options
        for session in self._open:
            session.close()
        wait_until_free(self._memory, options.gpu_free_timeout_s)
        port = options.port or free_port()
        url = f"http://{HOST}:{port}"
        environment = {**os.environ, **self._dialect.environment(target), **options.env}
        server = ServerProcess(
            found_program(self._dialect.command(target, HOST, port), options.cwd),
            self._log_path(target.arm),
            environment=environment,
            folder=None if options.cwd is None else Path(options.cwd),
            grace_s=options.stop_timeout_s,
            stop_command=options.stop_command,
        )
        try:
            probe = Client(self._settings(url, ""))
            try:
                server.wait_until(readiness(probe, url), options.start_timeout_s)
            finally:
                probe.close()
            return self._session(target, url, server, server.log)
        except BaseException:
            server.stop()
            raise

    def _session(
        self, target: Target, url: str, server: ServerProcess | None, log: Path | None
    ) -> ServedSession:
        client = Client(self._settings(url, ""))
        try:
            found = listed_models(client, url)
            served = served_name(found, target.options.served_model, self._model, url)
        finally:
            client.close()
        return ServedSession(
            self._dialect,
            target,
            Client(self._settings(url, served)),
            url,
            served,
            self._examples,
            encode=encoder(self._model) if target.options.prompt_ids else None,
            server=server,
            log=log,
            own_log=None if self._logs is None else self._log_path(target.arm),
        )

    def _settings(self, url: str, served: str) -> ClientSettings:
        options = self._options
        extra = dict(options.extra)
        if options.chat_template_kwargs:
            extra["chat_template_kwargs"] = options.chat_template_kwargs
        return ClientSettings(
            base_url=url,
            model=served,
            style="chat" if self._chat else (options.style or self._dialect.style),
            concurrency=self._concurrency,
            stream=options.stream,
            top_logprobs=2 if options.margins else None,
            token_ids=options.token_ids and self._dialect.knows_token_ids,
            seed=options.seed,
            request_timeout_s=options.request_timeout_s,
            stall_s=options.stall_s,
            retry_s=options.retry_s,
            thinking=options.thinks(),
            extra=extra,
            identity=instance,
            api_key=self._key,
        )

    def _log_path(self, arm: Arm) -> Path:
        folder = self._logs
        if folder is None:
            folder = self._logs = Path(tempfile.mkdtemp(prefix="evalsuite-"))
        return folder / arm.name / "engine.log"

    def close(self) -> None:
        """Close what is open and end what was started."""
        for session in self._open:
            session.close()
