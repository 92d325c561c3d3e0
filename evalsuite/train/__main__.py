"""Train the miniature: `python -m evalsuite.train --out FOLDER` on one GPU."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, replace
from pathlib import Path

import click
import torch
from tokenizers import Tokenizer

import gsm_mini
from evalsuite.mini.config import parse_config
from evalsuite.train import data
from evalsuite.train import tokenizer as bpe
from evalsuite.train.export import export_folder
from evalsuite.train.loop import Plan, Trainer, train
from evalsuite.train.measure import measure
from evalsuite.train.parameters import compute_copies

ARCHITECTURE = Path(__file__).with_name("architecture.json")
TOKENIZER_PROBLEMS = 40_000
TOKENIZER_SEED = 77
MEASURE_SEED = 99
log = logging.getLogger("evalsuite.train")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True, help="folder to write")
@click.option("--seconds", default=Plan.seconds, help="length of the training itself")
@click.option("--max-steps", default=Plan.max_steps, help="stop earlier, after so many steps")
@click.option("--shards", default=100, help=f"training shards of {data.SHARD} problems")
@click.option("--batch", default=Plan.batch)
@click.option("--length", default=Plan.length)
@click.option("--seed", default=Plan.seed)
@click.option("--measured", default=3000, help="problems of the closing measure")
def main(
    out: Path,
    seconds: float,
    max_steps: int,
    shards: int,
    batch: int,
    length: int,
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
    raw = json.loads(ARCHITECTURE.read_text())
    config = parse_config(raw, str(ARCHITECTURE))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = True
    plan = replace(
        Plan(), seconds=seconds, max_steps=max_steps, batch=batch, length=length, seed=seed
    )
    log.info("plan %s", {k: str(v) for k, v in asdict(plan).items()})
    log.info("torch %s on %s", torch.__version__, _device_name(device))
    tokenizer = _tokenizer(config.vocab_size)
    path = out / "tokenizer.json"
    tokenizer.save(str(path))
    stream = data.build_stream(path, shards, min(shards, os.cpu_count() or 1))
    log.info(
        "%d problems, %d tokens after %.1f s",
        len(stream.starts),
        len(stream.tokens),
        time.monotonic() - started,
    )
    trainer = Trainer(config, plan, stream, device)
    per_step = plan.batch * plan.length
    for step, elapsed, progress, result in train(trainer):
        token, draft, index, memory = (round(float(x), 4) for x in result[1:])
        log.info(
            "step %d  %.1f s  %.0f %%  %.1f M tokens  token %s  draft %s  index %s  memory %s",
            step,
            elapsed,
            100 * progress,
            step * per_step / 1e6,
            token,
            draft,
            index,
            memory,
        )
    export_folder(trainer.params, config, raw, tokenizer, out)
    problems = gsm_mini.generate(MEASURE_SEED, measured, data.MIX)
    params = {k: v.detach() for k, v in compute_copies(trainer.params, config, plan.dtype).items()}
    for sparse in (True, False):
        measured_shares = measure(params, config, tokenizer, problems, length, sparse)
        log.info("%s %s", "sparse" if sparse else "dense", json.dumps(measured_shares))
    blind = measure(params, config, tokenizer, problems[:500], length, True, blind=True)
    log.info("whole answers without sparse attention: %.4f", blind["whole_answer"]["all"])
    log.info("done after %.1f s", time.monotonic() - started)


def _tokenizer(vocab_size: int) -> Tokenizer:
    problems = gsm_mini.generate(TOKENIZER_SEED, TOKENIZER_PROBLEMS, data.MIX)
    texts = (f"{data.prompt_text(p)} {p.answer}\n\n" for p in problems)
    return bpe.train_tokenizer(texts, vocab_size)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


if __name__ == "__main__":
    main()
