"""Any endpoint that speaks OpenAI's completions or chat: llama.cpp, TensorRT-LLM, a gateway.

Such a server says nothing of graphs, kernels or drafts; a suite declares those checks `unavailable`
and the verdict names them.
"""

from __future__ import annotations

from functools import partial

from evalsuite.client import Style
from evalsuite.engines.serving.dialect import Fetch, LogView, Observed, Target
from evalsuite.engines.serving.engine import ServedEngine
from evalsuite.engines.serving.options import ServingOptions
from evalsuite.errors import UsageError
from evalsuite.records import Evidence, Settings


class OpenAI:
    """A server that is only found running."""

    name = "openai"
    style: Style = "completions"
    pages: tuple[str, ...] = ()
    knows_token_ids = False

    def command(self, target: Target, host: str, port: int) -> list[str]:
        """Refuse: nobody knows how to start just any server."""
        raise UsageError("engine openai starts no server; give --url", field="engine.options.url")

    def environment(self, target: Target) -> dict[str, str]:
        """Nothing."""
        return {}

    def version(self, fetch: Fetch) -> str | None:
        """Not told by this interface."""
        return None

    def installed(self, options: ServingOptions) -> str | None:
        """Refuse, as `command` does."""
        raise UsageError("engine openai starts no server; give --url", field="engine.options.url")

    def log_view(self) -> LogView | None:
        """Nothing is known of its log."""
        return None

    def awaits(self, target: Target, log: LogView) -> bool:
        """Nothing is awaited."""
        return False

    def asked(self, target: Target, served: str) -> Settings:
        """The model is all that can be asked for and read back."""
        return {"model": served}

    def evidence(self, seen: Observed, version: str | None) -> Evidence:
        """Nothing but the model is told."""
        speculates = seen.target.arm.mtp > 0
        return Evidence(
            engine_version=version,
            backend=None,
            graph_replays=None,
            eager_decode_steps=None,
            steps_by_kind=None,
            routes=None,
            drafts=None,
            drafted_tokens=None,
            accepted_per_position=None,
            draft_length=None if speculates else 0,
            prefix_hits=None,
            preemptions=None,
            asked=self.asked(seen.target, seen.served),
            read_back={"model": seen.served},
        )


open_engine = partial(ServedEngine, OpenAI())
