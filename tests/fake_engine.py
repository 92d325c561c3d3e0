"""An engine without a model, for tests: it knows the gold answers and errs where it is told to."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import cache

from evalsuite.arms import Arm
from evalsuite.engines.base import Answer, EngineDescription, Request
from evalsuite.errors import UsageError
from evalsuite.records import Evidence
from gsm_mini.rows import read_split


@cache
def answers_by_question() -> dict[str, str]:
    """Return the full gold answer of every test question."""
    return {row["question"]: row["answer"] for row in read_split("test")}


class FakeSession:
    """One arm: right on `accuracy` of the items, the same ones whatever the order of asking."""

    def __init__(self, arm: Arm, options: dict, engine_answers: list[str]) -> None:
        self.arm = arm
        self.engine_answers = engine_answers
        self.options = options
        self.steps = 0
        self.drafts = 0
        self.answered = 0

    def warm_up(self) -> None:
        if self.options.get("crash_in_warm_up") == self.arm.name:
            raise RuntimeError("capture failed")

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        for request in reversed(requests):
            self.answered += 1
            if self.options.get("crash_arm") == self.arm.name and self.answered > 3:
                raise RuntimeError("device lost with api_key=abcdefghij123456")
            if self.options.get("lose_arm") == self.arm.name and self.answered > 3:
                return
            on_answer(self._answer(request))
            self.engine_answers.append(request.request_id)
            if len(self.engine_answers) == self.options.get("interrupt_after"):
                raise KeyboardInterrupt

    def evidence(self) -> Evidence:
        k = self.arm.mtp
        kind = f"verify:{k + 1}" if k else "decode"
        return Evidence(
            engine_version="1",
            backend="fake",
            graph_replays=self.steps if self.arm.graph else 0,
            eager_decode_steps=0 if self.arm.graph else self.steps,
            steps_by_kind={"prefill": self.answered, kind: self.steps},
            routes={"prefill": "dense", kind: "dense"},
            drafts=self.drafts if k else None,
            drafted_tokens=self.drafts * k if k else None,
            accepted_per_position=[self.drafts // 10 * (9 - i) for i in range(k)] if k else None,
            draft_length=k or None,
            prefix_hits=0,
            preemptions=0,
            asked={"graph": self.arm.graph, "mtp": k},
            read_back={"graph": self.arm.graph, "mtp": k},
        )

    def close(self) -> None:
        pass

    def _answer(self, request: Request) -> Answer:
        started = time.time()
        # The variable is no part of the run's description, so that a resume may be quicker.
        time.sleep(float(os.environ.get("FAKE_DELAY_S", self.options.get("delay_s", 0.0))))
        self.steps += 10
        self.drafts += 10 if self.arm.mtp else 0
        question = request.prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:")
        text = " " + answers_by_question().get(question, "#### 4")
        bad = self.options.get("bad_arm") == self.arm.name
        right = self.options.get("bad_accuracy" if bad else "accuracy", 0.9)
        if _share(question) >= right:
            text = " It is 5*5=<<5*5=25>>25.\n#### 987654"
        margins = (float("nan"),) * 2 if self.options.get("nan_arm") == self.arm.name else (2.5, 3)
        return Answer(
            request_id=request.request_id,
            text=text,
            token_ids=(1, 2),
            margins=margins,
            finish_reason="stop",
            prompt_tokens=len(request.prompt),
            output_tokens=2,
            started=started,
            ended=time.time(),
            ttft_s=0.0,
            drafted=None,
            accepted=None,
            error=None,
        )


def _share(question: str) -> float:
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:4]) / 2**32


class FakeEngine:
    """The engine; options: accuracy, delay_s, refuse_arm, crash_arm, lose_arm, max_prompt, …"""

    name = "fake"

    def __init__(self, options: dict) -> None:
        self.options = options
        self.interleaves = bool(options.get("interleaves", True))
        self.answers: list[str] = []

    def check(self, requests: Sequence[Request]) -> None:
        limit = self.options.get("max_prompt", 10**9)
        for request in requests:
            if len(request.prompt) > limit:
                raise UsageError(f"prompt of {len(request.prompt)} characters", field="prompt")

    def start(self, arm: Arm) -> FakeSession:
        if self.options.get("refuse_arm") == arm.name:
            raise UsageError(f"{arm.name} asks for graphs, which are not to be had", field="arms")
        return FakeSession(arm, self.options, self.answers)

    def describe(self) -> EngineDescription:
        return EngineDescription(
            name="fake",
            version="1",
            model=None,
            model_hash=str(self.options.get("model_hash", "0" * 16)),
            dtype="float32",
            hardware={"device": "cpu", "name": "test", "count": 1},
            software={"fake": os.environ.get("FAKE_VERSION", "1")},
        )

    def close(self) -> None:
        pass


def open_engine(
    model: str | None,
    dtype: str | None,
    device: str | None,
    concurrency: int | None,
    options: dict,
) -> FakeEngine:
    """Open the fake engine as `fake_engine:open_engine`."""
    return FakeEngine(options)
