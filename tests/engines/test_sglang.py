"""SGLang's contract over answers in the form of its documentation; no live server was at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from served import run, verdict
from serving import app_of, events, served, stream

from evalsuite.arms import parse_arm
from evalsuite.client import Reply
from evalsuite.engines.serving.dialect import Target, Told
from evalsuite.engines.serving.options import read_options
from evalsuite.engines.sglang.dialect import Sglang, accepted, read_back
from evalsuite.errors import UsageError
from evalsuite.harness import HarnessTask, load_task
from evalsuite.protocol import Chat
from evalsuite.storage import read_evidence, read_records
from evalsuite.suite import EngineConfig, Suite

DATA = Path(__file__).parents[1] / "data" / "sglang"


def target(arm: str, **options: Any) -> Target:
    return Target(parse_arm(arm), read_options(options), "glm", "bfloat16")


@pytest.mark.parametrize(
    ("arm", "present", "absent"),
    [
        ("eager", "--disable-cuda-graph", "--speculative"),
        ("graph", "--enable-metrics", "--disable-cuda-graph"),
        (
            "mtp3",
            "--speculative-algorithm NEXTN --speculative-eagle-topk 1 --speculative-num-steps 3 "
            "--speculative-num-draft-tokens 4",
            "--disable-cuda-graph",
        ),
    ],
)
def test_flags(arm: str, present: str, absent: str) -> None:
    words = " ".join(Sglang().command(target(arm, tensor_parallel=4), "127.0.0.1", 30000))
    assert "--model-path glm --host 127.0.0.1 --port 30000" in words
    assert "--tp 4" in words and "--dtype bfloat16" in words
    assert present in words and absent not in words


def test_a_graph_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="one graph mode"):
        Sglang().command(target("graph", graph_mode="FULL"), "127.0.0.1", 1)


def test_the_configuration_is_read_back_nested_or_flat() -> None:
    flat = json.loads((DATA / "get_server_info.json").read_text())
    expected = {
        "disable_cuda_graph": False,
        "num_speculative_tokens": 3,
        "tensor_parallel": 4,
        "attention_backend": "dsa",
        "dtype": "bfloat16",
    }
    assert read_back(flat) == expected
    assert read_back({"server_args": flat}) == expected
    assert read_back({**flat, "speculative_algorithm": None})["num_speculative_tokens"] == 0
    assert read_back({"status": "ready"}) == {}


def told(*histograms: tuple[int, ...] | None) -> Told:
    found = Told()
    for counts in histograms:
        found.add(Reply("", "t", None, None, "stop", 1, 1, 0.0, 1.0, None, None, 6, counts))
    return found


def test_acceptance_by_position_from_histograms() -> None:
    # 2 steps accepted nothing, 1 one draft, 3 all three.
    assert accepted(told((2, 1, 0, 3), (0, 0, 0, 1)), 3) == (7, 12, [5, 4, 4])
    assert accepted(told((2,)), 3) == (2, 6, [0, 0, 0])
    assert accepted(told(None), 0) == (0, 0, [])
    assert accepted(told((1, 1), None), 1) == (None, None, None)


def sglang_app(**changes: Any) -> web.Application:
    info = json.loads((DATA / "get_server_info.json").read_text()) | changes
    answer = json.loads((DATA / "generate.json").read_text())

    async def generate(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["return_logprob"] and body["top_logprobs_num"] == 2
        assert body["sampling_params"]["temperature"] == 0.0
        half = {**answer, "text": answer["text"][:4]}
        half["meta_info"] = {**answer["meta_info"], "finish_reason": None}
        return await stream(request, events(half, answer, "[DONE]"))

    async def page(request: web.Request) -> web.Response:
        return web.json_response(info)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=(DATA / "metrics.txt").read_text())

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["return_meta_info"] and body["logprobs"] and body["top_logprobs"] == 2
        return web.Response(body=(DATA / "chat.json").read_bytes())

    pages = {"get_server_info": page, "metrics": metrics}
    return app_of(generate, chat=chat, generate=generate, **pages)


def run_sglang(task: HarnessTask, folder: Path, **changes: Any) -> None:
    with served(sglang_app(**changes)) as url:
        suite = Suite(
            name="sglang",
            engine=EngineConfig(
                kind="sglang", concurrency=4, options={"url": url, "tensor_parallel": 4}
            ),
            task="gsm_mini",
            arms=("mtp3",),
            unavailable=("route.graph_replays", "route.eager_decode_steps", "route.steps_by_kind"),
        )
        assert run(suite, task, folder, items=8).failed == {}


def test_a_run_over_recorded_answers(gsm_mini_task: HarnessTask, tmp_path: Path) -> None:
    run_sglang(gsm_mini_task, tmp_path / "run")
    record = read_records(tmp_path / "run", "mtp3")[0]
    assert record.text == " It is\n#### 4"
    assert record.token_ids == [11, 12, 13, 14]
    assert record.margins == pytest.approx([2.0, 1.5, 3.0, 0.25])
    assert (record.drafted, record.accepted) == (6, 2)
    evidence = read_evidence(tmp_path / "run", "mtp3")
    assert (evidence.draft_length, evidence.drafts, evidence.drafted_tokens) == (3, 16, 48)
    assert evidence.accepted_per_position == [8, 8, 0]
    assert evidence.routes == {"attention": "dsa"}
    assert evidence.read_back == evidence.asked
    assert evidence.engine_version == "0.5.9"
    found = [f.message for f in verdict(tmp_path / "run").findings if f.check == "route"]
    assert not any("fail" in message for message in found)


def test_a_chat_over_recorded_answers(tmp_path: Path) -> None:
    """By chat its answers tell their drafts where they are asked to, and not in pieces."""
    chat = Chat()
    asked = {"stream": False, "extra": {"return_meta_info": True}}
    with served(sglang_app()) as url:
        suite = Suite(
            name="sglang",
            engine=EngineConfig(kind="sglang", options={"url": url, "tensor_parallel": 4, **asked}),
            task="gsm_mini",
            arms=("mtp3",),
            chat=chat,
            unavailable=("route.graph_replays", "route.eager_decode_steps", "route.steps_by_kind"),
        )
        done = run(suite, load_task("gsm_mini", chat=chat), tmp_path / "run", items=8)
    assert done.failed == {}
    record = read_records(tmp_path / "run", "mtp3")[0]
    assert (record.text, record.finish_reason, record.output_tokens) == (" #### 4", "stop", 2)
    assert record.margins == pytest.approx([2.0, 0.25])
    assert (record.drafted, record.accepted) == (3, 1)
    evidence = read_evidence(tmp_path / "run", "mtp3")
    assert (evidence.drafts, evidence.accepted_per_position) == (8, [8, 0, 0])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"disable_cuda_graph": True}, "mtp3 runs with disable_cuda_graph = True, not False"),
        ({"speculative_num_draft_tokens": 3}, "mtp3 drafted 2 tokens a step, not 3"),
        ({"speculative_algorithm": None}, "mtp3 runs with num_speculative_tokens = 0, not 3"),
        ({"tp_size": 1}, "mtp3 runs with tensor_parallel = 1, not 4"),
    ],
)
def test_another_mode_than_asked_is_caught(
    gsm_mini_task: HarnessTask, tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    run_sglang(gsm_mini_task, tmp_path / "run", **changes)
    messages = [f.message for f in verdict(tmp_path / "run").findings if f.status == "fail"]
    assert expected in messages
