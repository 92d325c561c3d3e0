"""A program that serves gold answers as vLLM would: its flags, pages, counters and log lines.

Variables: LOCAL_DELAY_S (between pieces of an answer), LOCAL_START_S, LOCAL_DIES (exit while
starting), LOCAL_LIE (JSON: enforce_eager, k, backend, mode), LOCAL_KEY, LOCAL_QUEUE (requests at
once, then 429), LOCAL_ASKED (file that gets a line for every answer finished), LOCAL_CHILDREN (file
for the process ids of a child in the group and of one that left it).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "tasks")]

from gsm_mini.rows import read_split  # noqa: E402

WORD_ID = 1000


def log(text: str) -> None:
    print(f"(EngineCore pid={os.getpid()}) INFO 11-29 12:00:00 [x.py:1] {text}", flush=True)


class Server:
    """What is served and counted."""

    def __init__(self, flags: argparse.Namespace) -> None:
        lie = json.loads(os.environ.get("LOCAL_LIE", "{}"))
        spec = json.loads(flags.speculative_config) if flags.speculative_config else {}
        self.flags = flags
        self.k = lie.get("k", spec.get("num_speculative_tokens", 0))
        self.method = spec.get("method", "mtp")
        self.eager = lie.get("enforce_eager", flags.enforce_eager)
        asked = json.loads(flags.compilation_config).get("cudagraph_mode", "FULL_AND_PIECEWISE")
        self.mode = "NONE" if self.eager else asked
        self.downgraded = lie.get("mode")
        self.backend = lie.get("backend", "FLASH_ATTN_MLA_SPARSE")
        self.answers = {row["question"]: row["answer"] for row in read_split("test")}
        self.running = 0
        self.steps = 0
        self.drafts = 0
        self.generated = 0
        self.started = time.time()

    def announce(self) -> None:
        spec = f"SpeculativeConfig(method={self.method!r}, model='m', num_spec_tokens={self.k})"
        log("Resolved architecture: Glm5NextForCausalLM")
        if self.k:
            log("Resolved architecture: Glm5NextMTPModel")
        log(
            "Initializing a V1 LLM engine (v0.0.1) with config: "
            f"model='m', speculative_config={spec if self.k else None}, dtype=torch.bfloat16, "
            f"tensor_parallel_size=1, enforce_eager={self.eager}, compilation_config={{"
            f"'mode': 3, 'cudagraph_mode': <CUDAGraphMode.{self.mode}: (2, 1)>, "
            "'max_cudagraph_capture_size': 512}"
        )
        log(f"Using {self.backend} attention backend out of potential backends: ['{self.backend}']")
        if self.downgraded:
            log(f"CUDAGraphMode.FULL is not supported; setting cudagraph_mode={self.downgraded}")

    def table(self) -> None:
        mode = "NONE" if self.eager or self.downgraded == "NONE" else "FULL"
        log(
            "**CUDAGraph Config Settings:**\n\n- Mode: x\n\n**CUDAGraph Stats:**\n\n"
            "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |\n"
            "|-----------------|---------------|--------------|--------------|-------|\n"
            f"| 7               | 8             | 1            | {mode:12} | {self.steps:5} |\n"
        )
        self.steps = 0

    def text_of(self, prompt: str) -> str:
        question = prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:")
        return " " + self.answers.get(question, "It is #### 4")

    async def completions(self, request: web.Request) -> web.StreamResponse:
        key = os.environ.get("LOCAL_KEY")
        if key and request.headers.get("Authorization") != f"Bearer {key}":
            return web.Response(status=401, text="invalid key " + request.headers.get(
                "Authorization", ""))  # fmt: skip
        if self.running >= int(os.environ.get("LOCAL_QUEUE", "100000")):
            return web.Response(status=429, text="queue is full")
        body = await request.json()
        if body["model"] != self.flags.served_model_name:
            return web.Response(status=404, text="no such model")
        self.running += 1
        try:
            return await self._answer(request, body)
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        chat = "messages" in body
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        words = self.text_of(prompt).split(" ")[: body["max_tokens"]]
        finish = "length" if len(words) == body["max_tokens"] else "stop"
        pieces = [self._piece(word, chat, at, len(words), finish) for at, word in enumerate(words)]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(words)}
        delay = float(os.environ.get("LOCAL_DELAY_S", "0"))
        if not body["stream"]:
            await asyncio.sleep(delay * len(words))
            whole = {"text": " ".join(words), "finish_reason": finish}
            response: web.StreamResponse = web.json_response({"choices": [whole], "usage": usage})
        else:
            response = web.StreamResponse()
            await response.prepare(request)
            for piece in [*pieces, {"choices": [], "usage": usage}]:
                await response.write(f"data: {json.dumps(piece)}\n\n".encode())
                await asyncio.sleep(delay)
            await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
        steps = max(1, len(words) // (self.k + 1))
        self.steps += steps
        self.drafts += steps if self.k else 0
        self.generated += len(words)
        if asked := os.environ.get("LOCAL_ASKED"):
            with open(asked, "a") as file:
                file.write(json.dumps(prompt[-60:]) + "\n")
        return response

    def _piece(self, word: str, chat: bool, at: int, count: int, finish: str) -> dict[str, Any]:
        text = word if at == count - 1 else word + " "
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": finish if at == count - 1 else None,
            "token_ids": [WORD_ID + sum(map(ord, word))],
        }
        if chat:
            tops = [{"logprob": -0.1}, {"logprob": -3.1}]
            choice |= {
                "delta": {"content": text},
                "logprobs": {"content": [{"top_logprobs": tops}]},
            }
        else:
            choice |= {"text": text, "logprobs": {"top_logprobs": [{"a": -0.1, "b": -3.1}]}}
        return {"choices": [choice]}

    async def metrics(self, request: web.Request) -> web.Response:
        lines = [
            "# HELP process_start_time_seconds x",
            f"process_start_time_seconds {self.started}",
            f'vllm:generation_tokens_total{{engine="0"}} {self.generated}',
            'vllm:prefix_cache_hits_total{engine="0"} 32.0',
            'vllm:num_preemptions_total{engine="0"} 0.0',
        ]
        if self.k:
            name = "vllm:spec_decode_num_"
            lines += [
                f'{name}drafts_total{{engine="0"}} {self.drafts}',
                f'{name}draft_tokens_total{{engine="0"}} {self.drafts * self.k}',
                *(
                    f'{name}accepted_tokens_per_pos_total{{engine="0",position="{at}"}} '
                    f"{self.drafts * (8 - at) // 10}"
                    for at in range(self.k)
                ),
            ]
        return web.Response(text="\n".join(lines) + "\n")

    async def info(self, request: web.Request) -> web.Response:
        spec = {"num_speculative_tokens": self.k, "method": self.method} if self.k else None
        config = {
            "model_config": {"enforce_eager": self.eager, "dtype": "torch.bfloat16"},
            "compilation_config": {"cudagraph_mode": self.mode},
            "parallel_config": {"tensor_parallel_size": 1},
            "speculative_config": spec,
        }
        return web.json_response({"vllm_config": config})

    async def models(self, request: web.Request) -> web.Response:
        one = {"id": self.flags.served_model_name, "root": self.flags.model}
        return web.json_response({"data": [one]})


async def _ok(request: web.Request) -> web.Response:
    return web.json_response({"version": "0.0.1"})


async def _tables(server: Server) -> None:
    while True:
        await asyncio.sleep(0.2)
        if server.steps:
            server.table()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int)
    parser.add_argument("--served-model-name", default="tiny")
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--compilation-config", default="{}")
    parser.add_argument("--speculative-config")
    parser.add_argument("--cudagraph-metrics", action="store_true")
    flags, _ = parser.parse_known_args()
    if children := os.environ.get("LOCAL_CHILDREN"):
        group = subprocess.Popen(["sleep", "1000"])
        away = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(children).write_text(f"{os.getpid()} {group.pid} {away.pid}")
    time.sleep(float(os.environ.get("LOCAL_START_S", "0")))
    if dies := os.environ.get("LOCAL_DIES"):
        log(f"out of memory; {dies}")
        sys.exit(9)
    server = Server(flags)
    server.announce()
    app = web.Application()
    app.router.add_post("/v1/completions", server.completions)
    app.router.add_post("/v1/chat/completions", server.completions)
    for path, handler in (
        ("/health", _ok), ("/version", _ok), ("/metrics", server.metrics),
        ("/server_info", server.info), ("/v1/models", server.models),
    ):  # fmt: skip
        app.router.add_get(path, handler)
    if flags.cudagraph_metrics:
        app.cleanup_ctx.append(_background(server))
    web.run_app(app, host=flags.host, port=flags.port, print=None)


def _background(server: Server) -> Any:
    async def context(app: web.Application) -> Any:
        task = asyncio.create_task(_tables(server))
        yield
        task.cancel()

    return context


if __name__ == "__main__":
    main()
