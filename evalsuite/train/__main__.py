"""Train a miniature: `python -m evalsuite.train --out FOLDER` on one GPU."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from dataclasses import asdict
from pathlib import Path

import click
import torch
from tokenizers import Tokenizer

import gsm_mini
from evalsuite.train import data
from evalsuite.train import tokenizer as bpe
from evalsuite.train.architecture import Architecture
from evalsuite.train.export import export_folder
from evalsuite.train.loop import Plan, Trainer, train
from evalsuite.train.measure import measure
from evalsuite.train.parameters import compute_copies
from evalsuite.train.registry import ARCHITECTURES

TOKENIZER_PROBLEMS = 40_000
TOKENIZER_SEED = 77
MEASURE_SEED = 99
BLIND_PROBLEMS = 500
log = logging.getLogger("evalsuite.train")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder to write")
@click.option("--architecture", type=click.Choice(sorted(ARCHITECTURES)), default="glm53_mini")
@click.option("--seconds", default=Plan.seconds, help="length of the training itself")
@click.option("--max-steps", default=Plan.max_steps, help="stop earlier, after so many steps")
@click.option("--shards", default=100, help=f"training shards of {data.SHARD} problems")
@click.option("--batch", default=Plan.batch)
@click.option("--length", default=Plan.length)
@click.option("--learning-rate", default=Plan.learning_rate)
@click.option("--seed", default=Plan.seed)
@click.option("--measured", default=3000, help="problems of the closing measure")
def main(
    out: Path,
    architecture: str,
    seconds: float,
    max_steps: int,
    shards: int,
    batch: int,
    length: int,
    learning_rate: float,
    seed: int,
    measured: int,
) -> None:
    """Train from scratch and write checkpoint, tokenizer and log into OUT."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        level=logging.INFO,
        format="%(message)s",
        handlers=[logging.StreamHandler(), logging.FileHandler(out / "training.log", mode="w")],
    )
    known = ARCHITECTURES[architecture]
    raw = json.loads(known.file.read_text())
    chosen = known.read(raw, str(known.file))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    plan = Plan(
        seconds=seconds,
        max_steps=max_steps,
        batch=batch,
        length=length,
        learning_rate=learning_rate,
        rows=chosen.rows,
        seed=seed,
    )
    log.info("architecture %s, %d parameters", chosen.name, _parameters(chosen))
    log.info("plan %s", {k: str(v) for k, v in asdict(plan).items()})
    log.info("torch %s on %s", torch.__version__, _device_name(device))
    tokenizer = _tokenizer(chosen.config.vocab_size)
    path = out / "tokenizer.json"
    tokenizer.save(str(path))
    stream = data.build_stream(path, shards, min(shards, os.cpu_count() or 1))
    log.info(
        "%d problems, %d tokens after %.1f s",
        len(stream.starts),
        len(stream.tokens),
        time.monotonic() - started,
    )
    trainer = Trainer(chosen, plan, stream, device)
    _train(trainer)
    export_folder(trainer.params, chosen, raw, tokenizer, out)
    _measure(trainer, tokenizer, measured)
    log.info("done after %.1f s", time.monotonic() - started)


def _train(trainer: Trainer) -> None:
    per_step = trainer.plan.batch * trainer.plan.length
    for step, elapsed, progress, result in train(trainer):
        parts = {"token": result.token, "draft": result.draft, **result.extra}
        log.info(
            "step %d  %.1f s  %.0f %%  %.1f M tokens  %s",
            step,
            elapsed,
            100 * progress,
            step * per_step / 1e6,
            "  ".join(f"{name} {round(float(value), 4)}" for name, value in parts.items()),
        )


def _measure(trainer: Trainer, tokenizer: Tokenizer, count: int) -> None:
    architecture, length, device = trainer.architecture, trainer.plan.length, trainer.device
    problems = gsm_mini.generate(MEASURE_SEED, count, data.MIX)
    copies = compute_copies(trainer.params, architecture.specs, trainer.plan.dtype)
    params = {name: tensor.detach() for name, tensor in copies.items()}
    model = architecture.build(params, False)
    for sparse in (True, False) if architecture.selects else (False,):
        shares = measure(model, tokenizer, problems, length, sparse, device)
        log.info("%s %s", "sparse" if sparse else "dense", json.dumps(shares))
    if not architecture.selects:
        return
    # A checkpoint that answers without its sparse layers cannot show a fault in attention.
    blind = architecture.build(params, True)
    shares = measure(blind, tokenizer, problems[:BLIND_PROBLEMS], length, True, device)
    log.info("whole answers without sparse attention: %.4f", shares["whole_answer"]["all"])


def _parameters(architecture: Architecture) -> int:
    return sum(math.prod(spec.shape) for spec in architecture.specs)


def _tokenizer(vocab_size: int) -> Tokenizer:
    problems = gsm_mini.generate(TOKENIZER_SEED, TOKENIZER_PROBLEMS, data.MIX)
    texts = (f"{data.prompt_text(p)} {p.answer}\n\n" for p in problems)
    return bpe.train_tokenizer(texts, vocab_size)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


if __name__ == "__main__":
    main()
