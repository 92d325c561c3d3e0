"""`engine.options` of a suite whose engine is a server."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import msgspec

from evalsuite.arms import Arm
from evalsuite.client import Style, Thinking
from evalsuite.errors import UsageError

_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_VERSION = re.compile(r"/v\d+/?$")


class ServingOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to reach a server, or how to start one, and how to ask it.

    Attached: `url` for every arm, or `urls` by arm. Started where neither is given: `command`
    (words) followed by what the engine adds, then `args`, then the arm's words of `arm_args`
    (shell quoting), in folder `cwd` with `env` added to the environment. `expect` is read back and
    has to agree, `{attention_backend: NAME}` say. `log` or `logs` by arm name the log files of
    attached servers. `api_key_env` names an environment variable; no key is ever written down.
    """

    url: str | None = None
    urls: dict[str, str] = {}
    served_model: str | None = None
    revision: str | None = None
    api_key_env: str | None = None
    hardware: dict[str, str | int] | None = None
    log: str | None = None
    logs: dict[str, str] = {}

    style: Style | None = None
    stream: bool = True
    margins: bool = True
    token_ids: bool = True
    prompt_ids: bool = False
    seed: int | None = 0
    request_timeout_s: float = 1800.0
    stall_s: float = 300.0
    retry_s: float = 120.0
    extra: dict[str, Any] = {}
    chat_template_kwargs: dict[str, Any] = {}
    thinking: dict[str, Any] | None = None

    command: list[str] | None = None
    args: list[str] = []
    arm_args: dict[str, str] = {}
    env: dict[str, str] = {}
    cwd: str | None = None
    stop_command: list[str] | None = None
    start_timeout_s: float = 1800.0
    stop_timeout_s: float = 30.0
    gpu_free_timeout_s: float = 120.0
    port: int | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    pipeline_parallel: int = 1
    graph_mode: str | None = None
    graph_metrics: bool = True
    speculative: dict[str, Any] = {}
    expect: dict[str, str | int | bool] = {}
    warm_up: int = 8

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "data_parallel", "pipeline_parallel"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: at least 1 is needed")
        for name in ("request_timeout_s", "stall_s", "start_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: must be above 0")
        for address in (*self.urls.values(), *([self.url] if self.url else [])):
            if not address.startswith(("http://", "https://")):
                raise ValueError("url: must begin with http:// or https://")
        if self.api_key_env is not None and not _VARIABLE.fullmatch(self.api_key_env):
            # The value is not shown: it may be a key that was put where its variable belongs.
            raise ValueError("api_key_env: must be the name of an environment variable")

    @property
    def attached(self) -> bool:
        """Whether the servers run already."""
        return bool(self.url or self.urls)

    @property
    def devices(self) -> int:
        """How many devices one server takes."""
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel

    def url_of(self, arm: Arm) -> str:
        """Return the base URL of an arm's server, without `/v1`. Raises UsageError for none."""
        address = self.urls.get(arm.name, self.url)
        if address is None:
            raise UsageError(
                f"no URL for arm {arm.name}: give --url {arm.name}=http://…",
                field="engine.options.urls",
            )
        return _VERSION.sub("", address).rstrip("/")

    def any_url(self) -> str:
        """Return the base URL of one of the attached servers."""
        address = self.url or next(iter(self.urls.values()))
        return _VERSION.sub("", address).rstrip("/")

    def arm_words(self, arm: Arm) -> list[str]:
        """Return the extra words of an arm. Raises UsageError where they cannot be split."""
        try:
            return shlex.split(self.arm_args.get(arm.name, ""))
        except ValueError as problem:
            field = f"engine.options.arm_args.{arm.name}"
            raise UsageError(str(problem), field=field) from None

    def api_key(self) -> str | None:
        """Return the key. Raises UsageError where its environment variable is not set."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env)
        if not key:
            raise UsageError(
                f"environment variable {self.api_key_env} is not set",
                field="engine.options.api_key_env",
            )
        return key

    def thinks(self) -> Thinking | None:
        """Return how thinking is told apart, None for a model that does not think."""
        return None if self.thinking is None else Thinking(**self.thinking)


def read_options(options: dict[str, Any]) -> ServingOptions:
    """Return the options of a suite. Raises UsageError naming the key that is wrong."""
    try:
        return msgspec.convert(options, ServingOptions, strict=True)
    except msgspec.ValidationError as problem:
        raise UsageError(str(problem), field="engine.options") from None
