"""The client beside lm-eval's and vLLM's own GSM8K script, against a server that answers at once.

    python benchmarks/client.py
    python benchmarks/client.py --vllm-script gsm8k_eval.py --vllm-python .venv-vllm/bin/python

vLLM's script is `tests/evals/gsm8k/gsm8k_eval.py` of its repository; its wheels do not hold it.
lm-eval's client needs `pip install tenacity` (its extra `api`). Programs take turns over the same
number of few-shot prompts, forwards and backwards. Beside the rate, which falls with whatever else
the machine does, stands the processor time that a client takes for a request. The second table
tells what a client adds to the time that the server held each answer for.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from _client_peers import SCRIPT, SHOTS, VllmScript, cpu_seconds, lm_eval

from evalsuite.client import Client, ClientSettings, Prompt, Reply
from evalsuite.engines.serving.gpus import local_hardware
from evalsuite.engines.serving.process import free_port
from gsm_mini.rows import read_split

HERE = Path(__file__).parent
HELD = re.compile(r"held=([\d.]+)")
HOLD = (0.25, 0.75)


def prompts(count: int) -> list[str]:
    """Return prompts of about the size of five-shot GSM8K."""
    rows = read_split("fewshot")[:SHOTS]
    shots = "".join(f"Question: {r['question']}\nAnswer: {r['answer']}\n\n" for r in rows)
    questions = [row["question"] for row in read_split("test")]
    return [
        f"{shots}Question: {questions[n % len(questions)]} ({n})\nAnswer:" for n in range(count)
    ]


@contextmanager
def server(*limits: float) -> Iterator[int]:
    """Run the server; yields its port."""
    port = free_port()
    words = [sys.executable, str(HERE / "_instant_server.py"), str(port), *map(str, limits)]
    process = subprocess.Popen(words)
    probe = Client(ClientSettings(f"http://127.0.0.1:{port}", "instant"))
    try:
        for _ in range(100):
            with contextlib.suppress(RuntimeError):
                probe.fetch(f"http://127.0.0.1:{port}/v1/models")
                break
            time.sleep(0.05)
        yield port
    finally:
        probe.close()
        process.kill()
        process.wait()


def ours(port: int, texts: list[str], concurrency: int, stream: bool) -> list[Reply]:
    """Ask by this project's client."""
    url = f"http://127.0.0.1:{port}"
    client = Client(ClientSettings(url, "instant", concurrency=concurrency, stream=stream))
    replies: list[Reply] = []
    asked = [Prompt(str(n), text, 256, ("Question:",)) for n, text in enumerate(texts)]
    client.ask(asked, replies.append)
    client.close()
    assert len(replies) == len(texts) and not any(reply.error for reply in replies)
    return replies


def timed(program: Callable[[], float | None]) -> tuple[float, float]:
    """Return the seconds that a program took, by its own clock where it has one, and of them those
    of the processor."""
    begun, cpu = time.perf_counter(), cpu_seconds()
    own = program()
    return time.perf_counter() - begun if own is None else own, cpu_seconds() - cpu


def throughput(
    texts: list[str], concurrency: int, repeats: int, script: VllmScript | None
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return requests per second, and microseconds of the processor a request, by program."""
    with server() as port:
        programs: dict[str, Callable[[], float | None]] = {
            "evalsuite": lambda: _none(ours(port, texts, concurrency, False)),
            "evalsuite, streaming": lambda: _none(ours(port, texts, concurrency, True)),
        }
        if find_spec("tenacity") is not None:
            programs["lm-eval local-completions"] = lambda: lm_eval(port, texts, concurrency)
        if script is not None:
            script.measure_start(port)
            programs[SCRIPT] = lambda: script(port, texts, concurrency)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        for repeat in range(repeats):
            order = list(programs) if repeat % 2 == 0 else list(reversed(programs))
            for name in order:
                taken[name].append(timed(programs[name]))
    starting = {SCRIPT: script.starting_cpu_s} if script is not None else {}
    count = len(texts)
    rates = {name: [count / wall for wall, _ in turns] for name, turns in taken.items()}
    cpu = {
        name: [(used - starting.get(name, 0.0)) / count * 1e6 for _, used in turns]
        for name, turns in taken.items()
    }
    return rates, cpu


def _none(value: object) -> None:
    return None


def added(texts: list[str], concurrency: int) -> dict[str, list[float]]:
    """Return the milliseconds that the client added to each answer, without and with streaming."""
    found = {}
    with server(*HOLD) as port:
        for name, stream in (("evalsuite", False), ("evalsuite, streaming", True)):
            replies = ours(port, texts, concurrency, stream)
            # The first answers of all connections are asked for in one burst.
            late = sorted(replies, key=lambda reply: reply.started)[concurrency:]
            found[name] = [
                (r.ended - r.started - float(HELD.findall(r.text or "")[0])) * 1000 for r in late
            ]
    return found


def page(result: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        f"# Clients on {result['machine']}",
        "",
        f"{result['date']}, Python {platform.python_version()}; `python benchmarks/client.py`. "
        f"{result['prompts']} prompts of {result['characters']} characters, "
        f"{result['concurrency']} at once, a server that answers at once in a process of its own. "
        f"Load average before: {result['load_before']} on {os.cpu_count()} cores.",
        "",
        f"| client | requests a second, median of {result['repeats']} | lowest | highest | "
        "processor µs a request, median | lowest |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, rates in result["requests_per_second"].items():
        cpu = result["cpu_us_per_request"][name]
        middle, middle_cpu = statistics.median(rates), statistics.median(cpu)
        lines.append(
            f"| {name} | {middle:.0f} | {min(rates):.0f} | {max(rates):.0f} | {middle_cpu:.0f} | "
            f"{min(cpu):.0f} |"
        )
    lines += [
        "",
        f"Added latency at {result['concurrency']} requests at once, each held for {HOLD[0]} to "
        f"{HOLD[1]} s by the server:",
        "",
        "| client | median ms | 95 % ms | highest ms |",
        "| --- | --- | --- | --- |",
    ]
    for name, values in result["added_ms"].items():
        ordered = sorted(values)
        high = ordered[int(0.95 * len(ordered))]
        middle = statistics.median(ordered)
        lines.append(f"| {name} | {middle:.2f} | {high:.2f} | {ordered[-1]:.2f} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--count", default=5000, show_default=True, help="Prompts of one turn.")
@click.option("--concurrency", default=256, show_default=True)
@click.option("--repeats", default=5, show_default=True)
@click.option("--vllm-script", type=click.Path(path_type=Path, exists=True))
@click.option("--vllm-python", default=".venv-vllm/bin/python", show_default=True)
@click.option("--name", default="client-cpu", show_default=True)
def main(
    count: int,
    concurrency: int,
    repeats: int,
    vllm_script: Path | None,
    vllm_python: str,
    name: str,
) -> None:
    """Measure and write `results/<name>.md` and `.json`."""
    texts = prompts(count)
    script = None if vllm_script is None else VllmScript(vllm_script, vllm_python)
    hardware = local_hardware(1)
    load = round(os.getloadavg()[0], 1)
    rates, cpu = throughput(texts, concurrency, repeats, script)
    result: dict[str, Any] = {
        "machine": f"{hardware['name']}",
        "date": str(date.today()),
        "prompts": count,
        "characters": len(texts[0]),
        "concurrency": concurrency,
        "repeats": repeats,
        "load_before": load,
        "requests_per_second": rates,
        "cpu_us_per_request": cpu,
        "added_ms": added(texts[: 12 * concurrency], concurrency),
    }
    text = page(result)
    (HERE / "results" / f"{name}.md").write_text(text)
    (HERE / "results" / f"{name}.json").write_text(json.dumps(result) + "\n")
    click.echo(text)


if __name__ == "__main__":
    main()
