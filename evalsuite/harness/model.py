"""lm-eval's model interface on top of an arm of one of our engines."""

from __future__ import annotations

from functools import cache
from typing import Any

from evalsuite.arms import parse_arm
from evalsuite.engines.base import Answer, Request
from evalsuite.engines.opening import open_engine
from evalsuite.errors import RunIncomplete, UsageError
from evalsuite.harness.library import read_generation
from evalsuite.suite import DEFAULT_SUITE, EngineConfig, load_suite

MODEL_NAME = "evalsuite"


def engine_config(arguments: dict[str, Any]) -> EngineConfig:
    """Return the engine that lm-eval's `--model_args` ask for; what is no name here is an option.

    `engine=mini,model=…,dtype=…,device=…,concurrency=…`, all of them optional. Values that the
    arguments leave out come from the default suite where the engine is its own.
    """
    options = dict(arguments)
    suite = load_suite(DEFAULT_SUITE).engine
    kind = str(options.pop("engine", suite.kind))
    base = suite if kind == suite.kind else None
    named = {key: options.pop(key, None) for key in ("model", "dtype", "device", "concurrency")}
    settled = {
        key: value if value is not None else getattr(base, key, None)
        for key, value in named.items()
    }
    try:
        return EngineConfig(
            kind=kind, options={**(base.options if base else {}), **options}, **settled
        )
    except ValueError as problem:
        raise UsageError(str(problem), field="model_args") from None


@cache
def model_class() -> type[Any]:
    """Return the LM class; made on demand, since its base class is lm-eval's."""
    from lm_eval.api.model import LM
    from lm_eval.utils import simple_parse_args_string

    class EvalsuiteLM(LM):  # type: ignore[misc]
        """One arm of one engine, as lm-eval sees a model."""

        def __init__(self, arm: str = "eager", **arguments: Any) -> None:
            super().__init__()
            self._engine = open_engine(engine_config(arguments))
            self._session = self._engine.start(parse_arm(arm))
            self._session.warm_up()

        @classmethod
        def create_from_arg_obj(
            cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
        ) -> EvalsuiteLM:
            """Open the model that `--model_args` ask for; of lm-eval's own settings only --device.

            Its default `cuda:0` stands for no wish; the batch is the engine's concurrency.
            """
            device = (additional_config or {}).get("device")
            if device is not None and not str(device).startswith("cuda"):
                arg_dict = {"device": device, **arg_dict}
            return cls(**arg_dict)

        @classmethod
        def create_from_arg_string(
            cls, arg_string: str, additional_config: dict[str, Any] | None = None
        ) -> EvalsuiteLM:
            """As `create_from_arg_obj`, from `key=value,key=value`."""
            arguments = simple_parse_args_string(arg_string)
            return cls.create_from_arg_obj(arguments, additional_config)

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            """Answer all requests together; texts come back in the order of the requests."""
            asked = [_request(index, instance) for index, instance in enumerate(requests)]
            self._engine.check(asked)
            answers: dict[str, Answer] = {}

            def take(answer: Answer) -> None:
                answers[answer.request_id] = answer

            self._session.generate(asked, take)
            texts = [_text(answers.get(request.request_id)) for request in asked]
            for instance, text in zip(requests, texts, strict=True):
                self.cache_hook.add_partial("generate_until", instance.args, text)
            return texts

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            """Refuse: engines here answer, they do not score given text."""
            raise UsageError("only generation tasks can be run with model evalsuite", field="tasks")

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            """Refuse: engines here answer, they do not score given text."""
            raise UsageError("only generation tasks can be run with model evalsuite", field="tasks")

    return EvalsuiteLM


def _request(index: int, instance: Any) -> Request:
    prompt, arguments = instance.args[:2]
    generation = read_generation(arguments, str(instance.task_name))
    return Request(str(index), str(prompt), generation.max_tokens, generation.stops)


def _text(answer: Answer | None) -> str:
    if answer is None or answer.text is None:
        told = "no answer came back" if answer is None else str(answer.error)
        # lm-eval has no notion of an error: an empty text would be scored as a wrong answer.
        raise RunIncomplete(f"a request failed: {told}")
    return answer.text
