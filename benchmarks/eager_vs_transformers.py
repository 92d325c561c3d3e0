"""The eager arm on a CPU, beside transformers' `generate` on the same checkpoint and items.

    python benchmarks/eager_vs_transformers.py [--items 200] [--reference-items 32] [--repeats 3]

writes benchmarks/results/eager-cpu.md and the raw figures beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tasks"), str(ROOT / "tests" / "mini")]

import torch  # noqa: E402
import transformers  # noqa: E402
from hf_reference import HeadedModel  # noqa: E402

from evalsuite.arms import parse_arm  # noqa: E402
from evalsuite.engines.base import Answer, Request  # noqa: E402
from evalsuite.engines.mini import MiniEngine, open_engine  # noqa: E402
from evalsuite.harness import load_task, select  # noqa: E402
from evalsuite.mini.checkpoint import EMBEDDED  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
SECONDS_TARGET, ITEMS_TARGET, RATIO_TARGET = 120.0, 200, 10.0
# Enough tokens to hold the longest stop string.
STOP_WINDOW = 12
PAD = 1


@dataclass(frozen=True, slots=True)
class Pass:
    """One timed pass: what ran, over how many items, how many tokens, in how many seconds."""

    what: str
    items: int
    tokens: int
    seconds: float

    @property
    def rate(self) -> float:
        """Emitted tokens per second."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Setting:
    """How transformers generates: batch size, implementation of the experts, threads."""

    batch: int
    experts: str
    threads: int

    def __str__(self) -> str:
        return f"batch {self.batch}, experts {self.experts}"


def run_engine(
    engine: MiniEngine, requests: list[Request], what: str, threads: int
) -> tuple[Pass, list[Answer]]:
    """Answer all requests in a new session of the eager arm, with a cold prefix cache."""
    torch.set_num_threads(threads)
    session = engine.start(parse_arm("eager"))
    session.warm_up()
    answers: list[Answer] = []
    started = time.perf_counter()
    session.generate(requests, answers.append)
    seconds = time.perf_counter() - started
    session.close()
    tokens = sum(answer.output_tokens or 0 for answer in answers)
    return Pass(what, len(requests), tokens, seconds), answers


class StopAtStrings(transformers.StoppingCriteria):
    """Ends a row as soon as its new text holds one of the stops, as the engine does."""

    def __init__(self, decode: Callable[[list[int]], str], stops: tuple[str, ...], start: int):
        self.decode, self.stops, self.start = decode, stops, start

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Which rows are done, bool [B]."""
        recent = input_ids[:, max(self.start, input_ids.shape[1] - STOP_WINDOW) :].tolist()
        done = [any(stop in self.decode(row) for stop in self.stops) for row in recent]
        return torch.tensor(done, device=input_ids.device)


def generate_batch(
    model: HeadedModel, engine: MiniEngine, batch: list[Request]
) -> dict[str, list[int]]:
    """Greedy tokens of one left-padded batch, by request id, up to where each one stopped."""
    encoder = engine.checkpoint.tokenizer
    encoded = [encoder.encode(request.prompt).ids for request in batch]
    longest = max(len(ids) for ids in encoded)
    prompts = torch.tensor([[PAD] * (longest - len(ids)) + ids for ids in encoded])
    mask = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in encoded])
    stopper = StopAtStrings(encoder.decode, batch[0].stop, longest)
    out = model.generate(
        prompts,
        attention_mask=mask,
        max_new_tokens=batch[0].max_tokens,
        do_sample=False,
        pad_token_id=PAD,
        eos_token_id=engine.checkpoint.config.eos_token_id,
        stopping_criteria=[stopper],
    )
    rows = out[:, longest:].tolist()
    return {
        request.request_id: row[: row.index(PAD)] if PAD in row else row
        for request, row in zip(batch, rows, strict=True)
    }


def run_reference(
    engine: MiniEngine, requests: list[Request], setting: Setting
) -> tuple[Pass, dict[str, list[int]]]:
    """Answer all requests by `generate`; batches are of prompts of nearly equal length."""
    torch.set_num_threads(setting.threads)
    model = HeadedModel.from_pretrained(
        EMBEDDED, dtype=torch.float32, experts_implementation=setting.experts
    ).eval()
    ordered = sorted(requests, key=lambda request: len(request.prompt))
    generate_batch(model, engine, ordered[:1])
    tokens: dict[str, list[int]] = {}
    started = time.perf_counter()
    for at in range(0, len(ordered), setting.batch):
        tokens |= generate_batch(model, engine, ordered[at : at + setting.batch])
    seconds = time.perf_counter() - started
    emitted = sum(len(row) for row in tokens.values())
    return Pass(f"transformers ({setting})", len(requests), emitted, seconds), tokens


def choose_setting(
    engine: MiniEngine, requests: list[Request], arguments: argparse.Namespace
) -> tuple[Setting, list[Pass]]:
    """The fastest setting: the best batch size with the first experts, then the best experts."""
    tried: dict[Setting, Pass] = {}

    def rate(batch: int, experts: str) -> float:
        setting = Setting(batch, experts, arguments.threads)
        if setting not in tried:
            tried[setting], _ = run_reference(engine, requests, setting)
            print(f"{tried[setting].what}: {tried[setting].rate:.0f} tokens/s", file=sys.stderr)
        return tried[setting].rate

    batch = max(arguments.batches, key=lambda size: rate(size, arguments.experts[0]))
    experts = max(arguments.experts, key=lambda name: rate(batch, name))
    return Setting(batch, experts, arguments.threads), list(tried.values())


def same_answers(answers: list[Answer], tokens: dict[str, list[int]]) -> int:
    """How many of the engine's answers are the reference's, token by token."""
    return sum(list(answer.token_ids or ()) == tokens[answer.request_id] for answer in answers)


def prepare(arguments: argparse.Namespace) -> tuple[MiniEngine, list[Request]]:
    """The engine and the requests of the items."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    task = load_task("gsm_mini")
    budget, stops = task.generation.max_tokens, task.generation.stops
    requests = [
        Request(entry.item.item_id, entry.prompt, budget, stops)
        for entry in select(task.items, arguments.items)
    ]
    engine = open_engine(
        model=None,
        dtype="float32",
        device="cpu",
        concurrency=arguments.concurrency,
        options={},
    )
    engine.check(requests)
    return engine, requests


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run everything; returns the raw figures."""
    engine, requests = prepare(arguments)
    few, threads = requests[: arguments.reference_items], arguments.engine_threads
    fastest, tried = choose_setting(engine, few[: max(arguments.batches)], arguments)
    single = Setting(1, fastest.experts, arguments.threads)
    rounds = []
    for number in range(arguments.repeats):
        whole, _ = run_engine(engine, requests, "engine, all items", threads)
        part, answers = run_engine(engine, few, "engine", threads)
        batched, tokens = run_reference(engine, few, fastest)
        alone, _ = run_reference(engine, few, single)
        rounds.append([whole, part, batched, alone])
        rates = ", ".join(f"{each.what}: {each.rate:.0f} tokens/s" for each in rounds[-1])
        print(f"repeat {number + 1}: {whole.seconds:.1f} s; {rates}", file=sys.stderr)
    return {
        "machine": engine.describe().hardware,
        "software": {**engine.describe().software, "transformers": transformers.__version__},
        "threads": {"engine": threads, "transformers": arguments.threads},
        "tried": [asdict(each) | {"rate": each.rate} for each in tried],
        "rounds": [[asdict(each) | {"rate": each.rate} for each in turn] for turn in rounds],
        "ratios_fastest": [part.rate / batched.rate for _, part, batched, _ in rounds],
        "ratios_single": [part.rate / alone.rate for _, part, _, alone in rounds],
        "same_answers": same_answers(answers, tokens),
        "seconds": median(turn[0].seconds for turn in rounds),
        "items": len(requests),
        "reference_items": len(few),
    }


def ratio_line(name: str, ratios: list[float]) -> str:
    """One ratio with its spread and whether it meets the target."""
    met = "met" if median(ratios) >= RATIO_TARGET else "missed"
    return (
        f"- {name}: **{median(ratios):.1f}** (repeats {min(ratios):.1f} to {max(ratios):.1f}; "
        f"target {RATIO_TARGET:.0f}: {met})"
    )


def head(figures: dict[str, Any]) -> list[str]:
    """Where and how it was measured."""
    software, threads = figures["software"], figures["threads"]
    return [
        "# The eager arm on a CPU, beside transformers",
        "",
        f"{figures['machine']['name']}; torch {software['torch']}, transformers "
        f"{software['transformers']}; {threads['engine']} thread(s) for the engine, "
        f"{threads['transformers']} for transformers; float32, task `gsm_mini`, two shots, greedy. "
        f"Medians of {len(figures['rounds'])} interleaved repeats in one process. Written by "
        "`python benchmarks/eager_vs_transformers.py`.",
        "",
    ]


def page(figures: dict[str, Any]) -> str:
    """The figures as a page."""
    lines = [
        *head(figures),
        "| what | items | seconds | tokens/s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for turns in zip(*figures["rounds"], strict=True):
        seconds, rate = (median(turn[key] for turn in turns) for key in ("seconds", "rate"))
        lines.append(f"| {turns[0]['what']} | {turns[0]['items']} | {seconds:.1f} | {rate:.0f} |")
    lines += [
        "",
        f"Tokens per second of the engine over those of transformers on the same "
        f"{figures['reference_items']} items:",
        "",
        ratio_line("fastest setting found for `generate`", figures["ratios_fastest"]),
        ratio_line("`generate` one prompt at a time", figures["ratios_single"]),
        "",
        f"Answers equal token by token: {figures['same_answers']} of {figures['reference_items']}.",
        "",
    ]
    if figures["items"] == ITEMS_TARGET:
        met = "met" if figures["seconds"] <= SECONDS_TARGET else "missed"
        target = f"(target {SECONDS_TARGET:.0f}: {met})"
        lines += [f"{ITEMS_TARGET} items in {figures['seconds']:.1f} s {target}.", ""]
    lines += [
        "transformers runs its PyTorch fallbacks (flash-linear-attention and causal-conv1d need a "
        "GPU), left-padded batches of prompts of nearly equal length, each row ended by the same "
        "stops. It computes every prompt whole; the engine shares the few-shot prefix once it "
        "has computed it in the timed pass. Settings tried on the first items:",
        "",
        "| setting | items | tokens/s |",
        "| --- | ---: | ---: |",
        *(f"| {t['what']} | {t['items']} | {t['rate']:.0f} |" for t in figures["tried"]),
    ]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS_TARGET)
    parser.add_argument("--reference-items", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="threads of transformers")
    parser.add_argument("--engine-threads", type=int, default=1)
    parser.add_argument("--concurrency", type=int, help="requests at once in the engine")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--experts", nargs="+", default=["grouped_mm", "batched_mm", "eager"])
    parser.add_argument("--out", type=Path, default=RESULTS / "eager-cpu.md")
    return parser.parse_args()


def main() -> None:
    """Measure and write the page with its raw figures."""
    arguments = parse_arguments()
    figures = measure(arguments)
    arguments.out.write_text(page(figures), encoding="utf-8")
    arguments.out.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n")
    print(page(figures))


if __name__ == "__main__":
    main()
