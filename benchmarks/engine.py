"""The engine's arms side by side: tokens per second, accepted length, memory, draft steps.

    python benchmarks/engine.py                              on the GPU if there is one

Arms run over the same items in interleaved order (forwards, then backwards), so that a drift of
the machine falls on all alike; ratios are taken within a repeat and their median is shown.
"""

from __future__ import annotations

import gc
import json
import platform
import statistics
import sys
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import click
import torch

from evalsuite.arms import STANDARD_ARMS, Arm
from evalsuite.engines.mini import MiniEngine, open_engine
from evalsuite.mini.batch import RowSpec
from evalsuite.mini.engine import Session
from evalsuite.mini.sequence import GenerationRequest
from gsm_mini.rows import read_split

RESULTS = Path(__file__).parent / "results"
MAX_TOKENS = 192
STOPS = (b"Question:",)
LENGTH = 768
DRAFT_REPEATS = 40


def prompts(engine: MiniEngine, count: int) -> list[tuple[int, ...]]:
    """Two-shot prompts of the first test items, as the evaluation writes them."""
    shots = "".join(
        f"Question: {r['question']}\nAnswer: {r['answer']}\n\n" for r in read_split("fewshot")[:2]
    )
    rows = read_split("test")[:count]
    encode = engine.checkpoint.tokenizer.encode
    return [tuple(encode(f"{shots}Question: {r['question']}\nAnswer:").ids) for r in rows]


class Bench:
    """Sessions of one concurrency, opened once and measured again and again."""

    def __init__(self, engine: MiniEngine, concurrency: int, arms: list[Arm]) -> None:
        settings = {**engine.settings, "max_num_seqs": concurrency, "max_model_len": LENGTH}
        settings["admit_batch"] = max(1, min(concurrency, settings.get("admit_batch", 1)))
        if engine.device.type == "cpu":
            settings["graph_batches"] = tuple(sorted({min(4, concurrency), concurrency}))
        self.engine = replace(engine, settings=settings, _model=engine.model())
        self.sessions: dict[str, Session] = {}
        self.memory: dict[str, int] = {}
        self.weight_bytes = sum(t.nbytes for t in engine.checkpoint.tensors.values())
        for arm in arms:
            on_gpu = engine.device.type == "cuda"
            before = allocated(on_gpu)
            started = time.perf_counter()
            session = self.engine.start(arm)
            session.warm_up()
            self.sessions[arm.name] = session.session
            self.memory[arm.name] = allocated(on_gpu) - before
            note(f"  {arm.name} at {concurrency}: opened in {time.perf_counter() - started:.1f} s")

    def measure(self, name: str, asked: list[tuple[int, ...]]) -> dict[str, float]:
        """Answer all prompts once in one arm."""
        session, on_gpu = self.sessions[name], self.engine.device.type == "cuda"
        session.reset_counts()
        before = allocated(on_gpu)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        requests = [GenerationRequest(str(i), p, MAX_TOKENS, STOPS) for i, p in enumerate(asked)]
        started = time.perf_counter()
        tokens = sum(sequence.emitted for sequence in session.generate(requests))
        seconds = time.perf_counter() - started
        counts = session.counters
        accepted = 1 + sum(counts.accepted_per_position) / counts.drafts if counts.drafts else 1.0
        # What this arm would need alone: its session, the shared weights, and what a step takes.
        transient = torch.cuda.max_memory_allocated() - before if on_gpu else 0
        peak = self.weight_bytes + self.memory[name] + transient
        return {
            "seconds": seconds,
            "tokens": tokens,
            "accepted_length": accepted,
            "peak_bytes": peak,
        }

    def draft_step(self, name: str, asked: list[tuple[int, ...]]) -> float:
        """Median seconds per draft step of a full batch, on prompts that stand in the caches."""
        session = self.sessions[name]
        count = min(session.options.max_num_seqs, len(asked))
        for i, prompt in enumerate(asked[:count]):
            session.scheduler.add(GenerationRequest(str(i), prompt, MAX_TOKENS, STOPS))
        while session.scheduler.waiting or not all(s.prefilled for s in session.scheduler.running):
            session.step()
        running = session.scheduler.running
        specs = [RowSpec(s, [s.tokens[s.computed], *s.drafts], s.computed) for s in running]
        k, fused = session.options.k, session.options.fused_drafts
        size = session.runner.captured(len(specs))
        bounds = [0] * len(specs), [k] * len(specs)
        size.replay_target(specs, session.runner.tables, *bounds)
        times = []
        for _ in range(DRAFT_REPEATS):
            synchronize(self.engine.device)
            started = time.perf_counter()
            size.replay_drafts(specs, session.runner.tables, fused)
            synchronize(self.engine.device)
            times.append((time.perf_counter() - started) / k)
        for sequence in list(running):
            session.scheduler.finish(sequence)
        return statistics.median(times)


def allocated(on_gpu: bool) -> int:
    """Bytes that live tensors hold on the GPU."""
    gc.collect()
    return torch.cuda.memory_allocated() if on_gpu else 0


def synchronize(device: torch.device) -> None:
    """Wait for the GPU; a CPU is never behind."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def note(text: str) -> None:
    """Progress on standard error."""
    print(text, file=sys.stderr, flush=True)


def compare_arms(engine: MiniEngine, concurrency: int, items: int, repeats: int) -> dict[str, Any]:
    """All seven arms at one concurrency: medians, and ratios taken within each repeat."""
    bench = Bench(engine, concurrency, list(STANDARD_ARMS))
    asked = prompts(engine, items)
    for arm in STANDARD_ARMS:
        bench.measure(arm.name, asked[: min(concurrency, 8)])
    runs: dict[str, list[dict[str, float]]] = {arm.name: [] for arm in STANDARD_ARMS}
    for repeat in range(repeats):
        order = list(STANDARD_ARMS)[:: 1 if repeat % 2 == 0 else -1]
        for arm in order:
            runs[arm.name].append(bench.measure(arm.name, asked))
        note(f"  {concurrency} at once, repeat {repeat + 1} of {repeats}")
    rows = {}
    for arm in STANDARD_ARMS:
        mine = runs[arm.name]
        base = runs["graph" if arm.mtp else "eager"]
        rows[arm.name] = {
            "tokens_per_second": statistics.median(r["tokens"] / r["seconds"] for r in mine),
            "ratio": statistics.median(
                a["seconds"] / b["seconds"] for a, b in zip(mine, base, strict=True)
            ),
            "accepted_length": statistics.median(r["accepted_length"] for r in mine),
            "session_bytes": bench.memory[arm.name],
            "peak_bytes": max(r["peak_bytes"] for r in mine),
        }
    return {"concurrency": concurrency, "items": items, "runs": runs, "arms": rows}


def draft_steps(engine: MiniEngine, concurrency: int, depths: list[int]) -> dict[str, Any]:
    """Seconds per draft step with all steps in one graph and with metadata rebuilt in between."""
    found: dict[str, Any] = {"concurrency": concurrency}
    for k in depths:
        for fused in (True, False):
            changed = replace(
                engine, settings={**engine.settings, "fused_drafts": fused}, _model=engine.model()
            )
            bench = Bench(changed, concurrency, [Arm(f"mtp{k}", True, k)])
            found[f"mtp{k} {'fused' if fused else 'rebuilt'}"] = bench.draft_step(
                f"mtp{k}", prompts(engine, concurrency)
            )
    return found


def page(record: dict[str, Any]) -> str:
    """The Markdown page of a record."""
    on_gpu = record["device"] == "cuda"
    lines = [
        f"# The engine's arms on {record['machine']}",
        "",
        f"{record['date']}, torch {record['torch']}, {record['dtype']}, "
        f"{record['threads']} threads, attention on {record['route']}, "
        f"indexer on {record['indexer']}; "
        f"`python benchmarks/engine.py --name {record['name']}`.",
        "",
        "Wall ratio: `graph` over `eager`, `mtpK` over `graph`, median over "
        f"{record['repeats']} interleaved repeats on the same items. Absolute rates count only on "
        "a GPU.",
        "",
        "| at once | items | arm | wall ratio | tokens/s | accepted length |"
        + (" session MiB | peak MiB |" if on_gpu else ""),
        "| --- | --- | --- | --- | --- | --- |" + (" --- | --- |" if on_gpu else ""),
    ]
    for table in record["tables"]:
        for name, row in table["arms"].items():
            ratio = "1" if name == "eager" else f"{row['ratio']:.2f}"
            line = (
                f"| {table['concurrency']} | {table['items']} | {name} | {ratio} | "
                f"{row['tokens_per_second']:.0f} | {row['accepted_length']:.2f} |"
            )
            if on_gpu:
                line += f" {row['session_bytes'] / 2**20:.0f} | {row['peak_bytes'] / 2**20:.0f} |"
            lines.append(line)
    lines += [
        "",
        "Milliseconds per draft step: all steps in one graph, and with the metadata rebuilt on the "
        "host in between.",
        "",
    ]
    lines += [
        "| at once | k | fused | rebuilt | rebuilt / fused |",
        "| --- | --- | --- | --- | --- |",
    ]
    for table in record["draft_steps"]:
        for k in sorted({key.split()[0] for key in table if key != "concurrency"}):
            fused, rebuilt = table[f"{k} fused"] * 1e3, table[f"{k} rebuilt"] * 1e3
            lines.append(
                f"| {table['concurrency']} | {k[3:]} | {fused:.3f} | {rebuilt:.3f} | "
                f"{rebuilt / fused:.2f} |"
            )
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--name", default=None, help="name of the result, engine-cpu or engine-gpu")
@click.option("--sizes", default=None, help="concurrency:items, comma separated")
@click.option("--repeats", default=3)
@click.option("--threads", default=None, type=int)
@click.option("--drafts", default=None, help="concurrencies of the draft-step table")
@click.option("--indexer", default="torch", help="kernels: the choice of keys on kernels, too")
@click.option("--out", type=click.Path(path_type=Path), default=RESULTS)
def main(
    name: str | None,
    sizes: str | None,
    repeats: int,
    threads: int | None,
    drafts: str | None,
    indexer: str,
    out: Path,
) -> None:
    """Measure and write NAME.md and NAME.json."""
    options: dict[str, Any] = {"threads": threads} if threads else {}
    options["indexer"] = indexer
    engine = open_engine(model=None, dtype=None, device=None, concurrency=None, options=options)
    on_gpu = engine.device.type == "cuda"
    name = name or ("engine-gpu" if on_gpu else "engine-cpu")
    sizes = sizes or (
        "1:4,8:32,32:96,128:384,256:768" if on_gpu else "1:4,4:16,8:32,16:48,32:64,64:128"
    )
    drafts = drafts or ("1,32,256" if on_gpu else "4")
    record: dict[str, Any] = {
        "name": name,
        "date": date.today().isoformat(),
        "device": engine.device.type,
        "machine": engine.describe().hardware["name"],
        "platform": platform.platform(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "dtype": engine.dtype,
        "route": engine.model().route,
        "indexer": indexer,
        "model_hash": engine.checkpoint.model_hash,
        "repeats": repeats,
        "tables": [],
        "draft_steps": [],
    }
    out.mkdir(parents=True, exist_ok=True)
    for size in sizes.split(","):
        concurrency, items = map(int, size.split(":"))
        record["tables"].append(compare_arms(engine, concurrency, items, repeats))
        write(record, out)
    for concurrency in map(int, drafts.split(",")):
        record["draft_steps"].append(draft_steps(engine, concurrency, [2, 5]))
        write(record, out)
    print(page(record))


def write(record: dict[str, Any], out: Path) -> None:
    """Write what has been measured so far."""
    for key in ("tables", "draft_steps"):
        record[key].sort(key=lambda table: table["concurrency"])
    (out / f"{record['name']}.json").write_text(json.dumps(record, indent=1) + "\n")
    (out / f"{record['name']}.md").write_text(page(record))


if __name__ == "__main__":
    main()
