"""The client over real sockets: what it asks, what it reads, and every way in which that fails."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from serving import app_of, events, piece, served, stream

from evalsuite.client import (
    Client,
    ClientSettings,
    Prompt,
    Reply,
    ServerLost,
    ServerRefused,
    Thinking,
)

KEY = "key-of-a-form-that-nobody-knows-0815"


def settings(url: str, **changes: Any) -> ClientSettings:
    quick = ClientSettings(
        url, "tiny", concurrency=8, retry_s=3.0, retry_wait_s=0.01, stall_s=20.0, api_key=KEY
    )
    return replace(quick, **changes)


def ask(given: ClientSettings, count: int = 1, **prompt: Any) -> tuple[list[Reply], Client]:
    client = Client(given)
    replies: list[Reply] = []
    prompts = [
        Prompt(str(n), prompt.get("text", f"Question {n}"), 16, **_rest(prompt))
        for n in range(count)
    ]
    try:
        client.ask(prompts, replies.append)
    finally:
        client.close()
    return replies, client


def _rest(prompt: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in prompt.items() if key != "text"}


def first(handler: Any, **changes: Any) -> Reply:
    with served(app_of(handler)) as url:
        return ask(settings(url, **changes))[0][0]


def whole(text: str = " 4", **more: Any) -> web.Response:
    choice = {"index": 0, "text": text, "finish_reason": "stop", **more}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return web.json_response({"choices": [choice], "usage": usage})


def test_a_stream_is_put_together_with_ids_and_margins() -> None:
    seen: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        tops = [{"token_id:5": -0.1, "token_id:6": -2.6}]
        first_part = events(
            piece(" fo", token_ids=[5], logprobs={"top_logprobs": tops}),
            piece("ur ü", "length", token_ids=[7], logprobs={"top_logprobs": [{"a": -1, "b": -4}]}),
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            "[DONE]",
        )
        # Cut inside a line and inside a character: events do not come in whole pieces.
        cuts = [first_part[at : at + 7] for at in range(0, len(first_part), 7)]
        return await stream(request, *cuts)

    with served(app_of(handler)) as url:
        replies, _ = ask(
            settings(url, top_logprobs=2, token_ids=True), stops=("\n",), ids=(1, 2, 3)
        )
    reply = replies[0]
    assert reply.text == " four ü"
    assert reply.token_ids == (5, 7)
    assert reply.margins == pytest.approx((2.5, 3.0))
    assert (reply.finish, reply.prompt_tokens, reply.output_tokens) == ("length", 3, 2)
    assert reply.ttft_s is not None and 0.0 <= reply.ttft_s <= reply.ended - reply.started
    body = seen[0]
    assert body["prompt"] == [1, 2, 3]
    assert (body["temperature"], body["seed"], body["stop"], body["logprobs"]) == (
        0.0,
        0,
        ["\n"],
        2,
    )
    assert body["return_token_ids"] and body["return_tokens_as_token_ids"]


def test_an_answer_without_streaming() -> None:
    async def handler(request: web.Request) -> web.Response:
        assert not (await request.json())["stream"]
        return whole()

    reply = first(handler, stream=False)
    assert (reply.text, reply.ttft_s, reply.margins, reply.error) == (" 4", None, None, None)


def test_margins_that_are_not_told_of_each_token_are_not_told() -> None:
    tops = [[{"a": -1, "b": -2}, {"a": -1}], [{"a": -1, "b": -2}], []]

    async def handler(request: web.Request) -> web.Response:
        return whole(token_ids=[1, 2], logprobs={"top_logprobs": tops.pop()})

    for _ in range(len(tops)):
        assert first(handler, stream=False).margins is None


def test_chat_sends_turns_and_reads_margins() -> None:
    seen: list[dict[str, Any]] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        content = [{"token": "x", "top_logprobs": [{"logprob": -0.5}, {"logprob": -1.5}]}]
        said = {"index": 0, "delta": {"role": "assistant", "content": ""}}
        more = {
            "index": 0,
            "delta": {"content": "42"},
            "finish_reason": "stop",
            "token_ids": [9],
            "logprobs": {"content": content},
        }
        return await stream(request, events({"choices": [said]}, {"choices": [more]}, "[DONE]"))

    with served(app_of(handler)) as url:
        turns = (("system", "s"), ("user", "q"))
        replies, _ = ask(settings(url, style="chat", top_logprobs=2), messages=turns)
    assert (replies[0].text, replies[0].margins) == ("42", pytest.approx((1.0,)))
    assert seen[0]["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q"},
    ]
    assert (seen[0]["logprobs"], seen[0]["top_logprobs"]) == (True, 2)


def test_generate_reads_what_sglang_tells() -> None:
    def told(text: str, ids: list[int], finish: Any) -> dict[str, Any]:
        meta = {
            "finish_reason": finish,
            "prompt_tokens": 3,
            "completion_tokens": len(ids),
            "output_top_logprobs": [[[-0.5, one, None], [-2.0, 1, None]] for one in ids],
            "spec_num_proposed_drafts": 6,
            "spec_num_correct_drafts": 4,
            "spec_correct_drafts_histogram": [0, 1, 0, 1],
        }
        return {"text": text, "output_ids": ids, "meta_info": meta}

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["sampling_params"]["max_new_tokens"] == 16
        parts = (told("a", [4], None), told("ab", [4, 5], {"type": "stop", "matched": 2}), "[DONE]")
        return await stream(request, events(*parts))

    with served(app_of(handler, generate=handler)) as url:
        reply = ask(settings(url, style="generate", top_logprobs=2))[0][0]
    assert (reply.text, reply.token_ids, reply.finish) == ("ab", (4, 5), "stop")
    assert reply.margins == pytest.approx((1.5, 1.5))
    assert (reply.drafted, reply.accepted_histogram, reply.accepted) == (6, (0, 1, 0, 1), 4)


@pytest.mark.parametrize(
    ("text", "implied", "expected"),
    [
        ("<think>2+2</think>\n4", False, "\n4"),
        ("2+2</think>4", True, "4"),
        ("2+2 and so on", True, "<think>2+2 and so on"),
        ("<think>2+2 and so on", False, "<think>2+2 and so on"),
        ("4", False, "4"),
    ],
)
def test_thinking_in_tags_is_left_out_once_it_is_closed(
    text: str, implied: bool, expected: str
) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert (await request.json())["max_tokens"] == 16 + 100
        return whole(text)

    reply = first(handler, stream=False, thinking=Thinking(implied=implied, budget=100))
    assert reply.text == expected


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("answer", ["4", ""])
def test_thinking_in_a_field_of_its_own(field: str, answer: str) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        parts = [{"choices": [{"delta": {field: "2+2"}}]}]
        end = {"delta": {"content": answer}, "finish_reason": "stop" if answer else "length"}
        return await stream(request, events(*parts, {"choices": [end]}, "[DONE]"))

    reply = first(handler, style="chat", thinking=Thinking())
    assert reply.text == (answer or "<think>2+2")


def flaky(*faults: Any) -> tuple[Any, Counter[str]]:
    """Return a handler that meets each request first with the faults, then with an answer."""
    asked: Counter[str] = Counter()

    async def handler(request: web.Request) -> web.StreamResponse:
        prompt = (await request.json())["prompt"]
        asked[prompt] += 1
        if asked[prompt] <= len(faults):
            return await faults[asked[prompt] - 1](request)
        return await stream(request, events(piece(" 4", "stop"), "[DONE]"))

    return handler, asked


async def _drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _status(code: int, **headers: str) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=f"no: {KEY}", headers=headers)

    return answer


@pytest.mark.parametrize(
    ("fault", "kind"),
    [(_drop, "connection"), (_status(429), "429"), (_status(503), "503"), (_status(500), "500")],
)
def test_what_failed_before_a_token_came_is_tried_again_and_counted(fault: Any, kind: str) -> None:
    handler, asked = flaky(fault, fault)
    with served(app_of(handler)) as url:
        replies, client = ask(settings(url), count=5)
    assert [reply.error for reply in replies] == [None] * 5
    assert set(asked.values()) == {3}
    assert client.counts.retries == {kind: 10}
    assert f"10 retries ({kind}: 10)" in str(client.counts)


@pytest.mark.parametrize(("begun", "attempts"), [(False, 3), (True, 1)])
def test_a_full_server_that_says_so_inside_its_answer_is_asked_again(
    begun: bool, attempts: int
) -> None:
    asked = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        full = {"error": {"message": "busy", "type": "Service Unavailable", "code": 503}}
        if asked < 3:
            return await stream(request, events(*([piece(" 4")] if begun else []), full, "[DONE]"))
        return await stream(request, events(piece(" 4", "stop"), "[DONE]"))

    with served(app_of(handler)) as url:
        replies, client = ask(settings(url))
    assert asked == attempts
    assert client.counts.retries == ({} if begun else {"503": 2})
    assert (replies[0].error is None) is not begun


def test_a_server_that_asks_for_patience_is_given_it() -> None:
    handler, _ = flaky(_status(429, **{"Retry-After": "1"}))
    with served(app_of(handler)) as url:
        begun = time.monotonic()
        ask(settings(url))
    assert time.monotonic() - begun >= 0.5


def test_a_full_queue_is_an_error_in_the_end_and_never_a_wrong_answer() -> None:
    with served(app_of(_status(429))) as url:
        replies, client = ask(settings(url, retry_s=0.2))
    assert replies[0].text is None
    assert str(replies[0].error).startswith("HTTP 429")
    assert client.counts.failures == {"429": 1}


def test_a_stream_that_ends_inside_the_answer_is_an_error_and_is_not_asked_again() -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(1)
        return await stream(request, events(piece(" It is 4")))

    reply = first(handler)
    assert (reply.text, len(asked)) == (None, 1)
    assert "inside the answer" in str(reply.error)


def test_a_token_whose_text_is_held_back_has_come_all_the_same() -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(1)
        return await stream(request, events(piece("")))

    assert "inside the answer" in str(first(handler).error)
    assert len(asked) == 1


def test_a_connection_that_breaks_inside_the_answer_is_an_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(events(piece(" It is 4")))
        await asyncio.sleep(0.05)
        return await _drop(request)

    assert "inside the answer" in str(first(handler).error)


def test_a_stream_that_ends_before_it_began_is_asked_again() -> None:
    async def nothing(request: web.Request) -> web.StreamResponse:
        return await stream(request, events({"choices": [{"delta": {"content": ""}}]}))

    handler, asked = flaky(nothing)
    assert first(handler).text == " 4"
    assert asked.total() == 2


@pytest.mark.parametrize("data", [b'{"choices": [', b"<html>busy</html>", b'{"choices": 4}'])
@pytest.mark.parametrize("streamed", [True, False])
def test_what_is_no_answer_is_an_error(data: bytes, streamed: bool) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if streamed:
            return await stream(request, b"data: " + data + b"\n\n")
        return web.Response(body=data, content_type="application/json")

    assert "cannot be read" in str(first(handler, stream=streamed).error)


def test_an_error_inside_the_stream_and_an_aborted_answer_are_errors() -> None:
    async def failed(request: web.Request) -> web.StreamResponse:
        return await stream(request, events(piece("a"), {"error": {"message": "CUDA error"}}))

    async def aborted(request: web.Request) -> web.StreamResponse:
        return await stream(request, events(piece("a", "abort"), "[DONE]"))

    assert "CUDA error" in str(first(failed).error)
    assert "'abort'" in str(first(aborted).error)


def test_a_refused_request_is_an_error_and_the_others_go_on() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if (await request.json())["prompt"] == "Question 3":
            return web.Response(status=400, text="too long")
        return whole()

    with served(app_of(handler)) as url:
        replies, _ = ask(settings(url, stream=False), count=8)
    assert Counter(reply.error for reply in replies) == {None: 7, "HTTP 400: too long": 1}


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_server_that_refuses_all_ends_the_call_without_answers(code: int) -> None:
    replies: list[Reply] = []
    with served(app_of(_status(code))) as url:
        client = Client(settings(url))
        with pytest.raises(ServerRefused, match=f"HTTP {code}") as caught:
            client.ask([Prompt(str(n), "q", 4) for n in range(50)], replies.append)
        client.close()
    assert replies == []
    assert KEY not in str(caught.value)


def test_failures_without_a_single_answer_end_the_call_and_none_is_passed_on() -> None:
    asked = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(1)
        return web.Response(status=400, text="no")

    replies: list[Reply] = []
    with served(app_of(handler)) as url:
        client = Client(settings(url, errors_in_a_row=10))
        with pytest.raises(ServerLost, match="10 requests failed in a row: HTTP 400: no"):
            client.ask([Prompt(str(n), "q", 4) for n in range(500)], replies.append)
        client.close()
    assert replies == [] and len(asked) < 30


def test_the_key_is_sent_and_appears_in_no_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        return web.Response(status=400, text=f"bad key {KEY}")

    with served(app_of(handler)) as url:
        given = settings(url)
        reply = ask(given)[0][0]
    assert reply.error == "HTTP 400: bad key ***"
    assert KEY not in repr(given)


def test_an_answer_cut_by_the_time_limit_is_cut_and_one_that_never_began_an_error() -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        return await stream(request, *[events(piece(" 4"))] * 40, pause_s=0.1)

    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3)
        return whole()

    cut = first(slow, request_timeout_s=0.5)
    assert cut.finish == "length" and cut.text is not None and cut.text.startswith(" 4")
    assert first(silent, request_timeout_s=0.3).error == "no answer within 0.3 s"


def test_a_server_that_says_nothing_for_too_long_is_lost() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if (await request.json())["prompt"] == "Question 0":
            return whole()
        await asyncio.sleep(30)
        return whole()

    replies: list[Reply] = []
    with served(app_of(handler)) as url:
        client = Client(settings(url, stream=False, stall_s=0.7))
        begun = time.monotonic()
        with pytest.raises(ServerLost, match="nothing came from the server for 1 s"):
            client.ask([Prompt(str(n), f"Question {n}", 4) for n in range(4)], replies.append)
        took = time.monotonic() - begun
        client.close()
    assert took < 5
    assert [reply.request_id for reply in replies] == ["0"]


def test_slow_pieces_are_progress() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(
            request, *[events(piece("x"))] * 8, events(piece("", "stop")), pause_s=0.2
        )

    assert first(handler, stall_s=0.9).text == "x" * 8


def test_nobody_at_the_port() -> None:
    with served(app_of(_drop)) as url:
        pass
    client = Client(settings(url, retry_s=0.3))
    with pytest.raises(ServerLost, match="the server is gone"):
        client.ask([Prompt("0", "q", 4)], lambda reply: None)
    with pytest.raises(ServerLost, match="nothing answers at"):
        client.fetch(url + "/v1/models")
    client.close()


def test_concurrency_is_bounded_and_connections_are_kept() -> None:
    now, most, ports = 0, 0, set()

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1
        return whole()

    with served(app_of(handler)) as url:
        replies, client = ask(settings(url, stream=False, concurrency=6), count=120)
    assert sorted(int(reply.request_id) for reply in replies) == list(range(120))
    assert most == 6 and len(ports) <= 12
    assert client.counts.requests == 120


def test_a_connection_outlives_a_stream_whose_end_comes_after_its_last_event() -> None:
    ports = set()

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        return await stream(request, events(piece(" 4", "stop"), "[DONE]"), pause_s=0.01)

    with served(app_of(handler)) as url:
        replies, _ = ask(settings(url, concurrency=2), count=20)
    assert {reply.text for reply in replies} == {" 4"}
    assert len(ports) == 2


def test_a_stream_that_never_ends_after_its_last_event_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evalsuite.client.attempt.READ_OFF_S", 0.05)

    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, events(piece(" 4", "stop"), "[DONE]"), pause_s=2.0)

    assert first(handler).text == " 4"


def test_an_interrupt_in_the_callers_thread_ends_the_requests() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if (await request.json())["prompt"] == "Question 0":
            return whole()
        await asyncio.sleep(30)
        return whole()

    def interrupted(reply: Reply) -> None:
        raise KeyboardInterrupt

    app = app_of(handler)
    with served(app) as url:
        client = Client(settings(url, stream=False))
        with pytest.raises(KeyboardInterrupt):
            client.ask([Prompt(str(n), f"Question {n}", 4) for n in range(3)], interrupted)
        client.close()
        assert not client._thread.is_alive()


def test_per_answer_figures_of_speculation_are_read() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        told = {"acceptance_histogram": [1, 0, 2], "num_draft_tokens": 6, "num_spec_steps": 3}
        last = {"choices": [], "metrics": {"speculative_decoding": told}}
        return await stream(request, events(piece(" 4", "stop"), last, "[DONE]"))

    reply = first(handler)
    assert (reply.drafted, reply.accepted) == (6, 4)


def test_the_body_is_json_that_the_suite_can_add_to() -> None:
    bodies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        bodies.append(json.loads(await request.text()))
        return whole()

    first(handler, stream=False, extra={"chat_template_kwargs": {"enable_thinking": False}})
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}
