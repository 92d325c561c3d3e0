"""Families H and S: what a server hands out, and what a harness does with it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evalsuite.engines.base import Answer
from evalsuite.faults import seams
from evalsuite.faults.fault import ANSWERS, DRAFTS, Fault
from evalsuite.faults.patch import Patch

MINI = "evalsuite.engines.mini"
SERVED = ("eager", "eager-mtp3")
Change = Callable[[Answer, int], Iterator[Answer]]


def served(change: Change) -> list[Patch]:
    """Change what arms that draft hand out: change(answer, its number) yields what is handed on."""

    def wrap(generate: Any) -> Any:
        def changed(self: Any, requests: Any, on_answer: Any) -> None:
            if not self.arm.mtp:
                generate(self, requests, on_answer)
                return
            numbers = {request.request_id: number for number, request in enumerate(requests)}

            def take(answer: Answer) -> None:
                for one in change(answer, numbers[answer.request_id]):
                    on_answer(one)

            generate(self, requests, take)

        return changed

    return [Patch(f"{MINI}:MiniSession.generate", wrap)]


def _special_text(answer: Answer, number: int) -> Iterator[Answer]:
    if number % 4 or answer.text is None:
        yield answer
        return
    at = len(answer.text) // 2
    yield replace(answer, text=f"{answer.text[:at]}<|assistant|>{answer.text[at:]}")


def _late_loop(answer: Answer, number: int) -> Iterator[Answer]:
    if number % 8 or answer.text is None:
        yield answer
        return
    yield replace(answer, text=answer.text + " and the" * 60, finish_reason="length")


def _replacement_signs(answer: Answer, number: int) -> Iterator[Answer]:
    if number % 8 or answer.text is None:
        yield answer
        return
    words = answer.text.split(" ")
    words[3::5] = ["\ufffd"] * len(words[3::5])
    yield replace(answer, text=" ".join(words))


def _swapped() -> list[Patch]:
    held: list[Answer] = []

    def change(answer: Answer, number: int) -> Iterator[Answer]:
        if not held:
            held.append(answer)
            return
        first = held.pop()
        yield replace(answer, request_id=first.request_id)
        yield replace(first, request_id=answer.request_id)

    return served(change)


def _no_score(answer: Answer, number: int) -> Iterator[Answer]:
    broken = None if answer.margins is None else (float("nan"),) * len(answer.margins)
    yield replace(answer, margins=broken) if number % 8 == 0 else answer


def _empty_text(answer: Answer, number: int) -> Iterator[Answer]:
    empty = replace(answer, text="", token_ids=(), margins=(), output_tokens=0)
    yield empty if number % 8 == 0 else answer


def _dies(answer: Answer, number: int) -> Iterator[Answer]:
    if number == 9:
        raise RuntimeError("device lost")
    yield answer


def _lost_records() -> list[Patch]:
    count = [0]

    def wrap(append: Any) -> Any:
        def lossy(self: Any, record: Any) -> None:
            count[0] += 1
            if count[0] % 16:
                append(self, record)

        return lossy

    return [Patch("evalsuite.recordlog:RecordLog.append", wrap)]


def _other_arms_records(folder: Path) -> None:
    """Put eager's records where those of the arm that drafts should be."""
    lines = (folder / "eager" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [{**json.loads(line), "arm": "eager-mtp3"} for line in lines]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "eager-mtp3" / "records.jsonl").write_text(text, encoding="utf-8")


def _options(change: Callable[[Any], dict[str, Any]]) -> list[Patch]:
    def wrap(options: Any) -> Any:
        def changed(self: Any, arm: Any) -> Any:
            made = options(self, arm)
            return replace(made, **change(made))

        return changed

    return [Patch(f"{MINI}:MiniEngine.options", wrap)]


def _never_drafts() -> list[Patch]:
    return [
        Patch(
            "evalsuite.mini.scheduler:Scheduler._drafts_to_verify", lambda _: lambda *arguments: 0
        )
    ]


def _short_budget() -> list[Patch]:
    def wrap(request: Any) -> Any:
        return lambda self, asked: request(self, replace(asked, max_tokens=64))

    return [Patch(f"{MINI}:MiniEngine.request", wrap)]


def _all_accepted(verify: Any, scores: Any, tokens: Any, width: Any, low: Any, high: Any) -> Any:
    return verify(scores, tokens, width, (width - 1).clamp(min=0), high)


def _waiting() -> list[Patch]:
    def wrap(replay: Any) -> Any:
        def slow(self: Any, *arguments: Any) -> Any:
            time.sleep(0.02 * self.k)
            return replay(self, *arguments)

        return slow

    return [Patch(f"{seams.CAPTURED}:CapturedSize.replay_drafts", wrap)]


def _eager_always() -> Sequence[Patch]:
    return [Patch("evalsuite.mini.options:SessionOptions.ladder", lambda _: lambda self: ())]


SHOWN = ("degeneration",)
FAULTS = (
    Fault(
        "H-01",
        "special tokens leak into answers",
        "vllm#41834",
        "one answer in four of the arm that drafts holds the text of a special token",
        lambda: served(_special_text),
        SERVED,
        SHOWN,
    ),
    Fault(
        "H-02",
        "word salad behind a right answer",
        "vllm#56605, #56868",
        "one answer in eight of the arm that drafts ends in a loop",
        lambda: served(_late_loop),
        SERVED,
        SHOWN,
    ),
    Fault(
        "H-03",
        "wrong token ids that show as replacement characters",
        "vllm#54150",
        "one answer in eight of the arm that drafts has U+FFFD in place of words",
        lambda: served(_replacement_signs),
        SERVED,
        SHOWN,
    ),
    Fault(
        "S-01",
        "answers are lost on their way to disk",
        "harness",
        "every sixteenth record is not written",
        _lost_records,
        ("eager", "graph"),
        ("completeness",),
        "evidence",
    ),
    Fault(
        "S-02",
        "answers are swapped between requests",
        "harness",
        "two answers at a time of the arm that drafts change places",
        _swapped,
        SERVED,
        ANSWERS,
    ),
    Fault(
        "S-03",
        "a score is not a number",
        "harness",
        "one answer in eight of the arm that drafts has NaN for margins",
        lambda: served(_no_score),
        SERVED,
        ("completeness",),
        "evidence",
    ),
    Fault(
        "S-04",
        "a resumed run takes another arm's records",
        "harness",
        "the arm that drafts holds eager's records under its own name",
        arms=SERVED,
        checks=("completeness",),
        effect="evidence",
        tamper=_other_arms_records,
    ),
    Fault(
        "S-05",
        "graphs fall back to eager without a word",
        "harness",
        "sessions that ask for graphs capture none",
        _eager_always,
        ("eager", "graph"),
        ("route",),
        "evidence",
    ),
    Fault(
        "S-06",
        "speculation is configured and never runs",
        "harness",
        "no draft is ever verified",
        _never_drafts,
        DRAFTS,
        ("acceptance", "route"),
        "evidence",
    ),
    Fault(
        "S-07",
        "fewer drafts than asked for",
        "harness",
        "sessions draft one token less",
        lambda: _options(lambda made: {"k": max(0, made.k - 1)}),
        DRAFTS,
        ("route",),
        "evidence",
    ),
    Fault(
        "S-08",
        "the token budget is cut",
        "harness",
        "every answer may have 64 tokens",
        _short_budget,
        DRAFTS,
        ("truncation",),
    ),
    Fault(
        "S-09",
        "a server answers 200 with an empty text",
        "harness",
        "one answer in eight of the arm that drafts is empty",
        lambda: served(_empty_text),
        SERVED,
        ANSWERS,
    ),
    Fault(
        "S-10",
        "an arm dies on the way",
        "harness",
        "the arm that drafts fails after nine answers",
        lambda: served(_dies),
        SERVED,
        ("completeness",),
    ),
    Fault(
        "S-11",
        "drafts are accepted without being verified",
        "vLLM's synthetic rejection sampler left on",
        "every draft counts as accepted",
        lambda: seams.verification(_all_accepted),
    ),
    Fault(
        "S-12",
        "drafting waits for the host",
        "vllm#54369",
        "20 ms for each draft of a replayed step",
        _waiting,
        ("eager", "graph", "mtp3"),
        ("wall",),
        "speed",
        blind="on a CPU wall time only warns",
        blind_on="cpu",
    ),
)
