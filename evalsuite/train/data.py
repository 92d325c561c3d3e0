"""Training data: generated problems as one long stream of tokens with a weight for each.

Problems are written as the evaluation writes them (`Question: ...`, `Answer: ...`, a blank line
between), so that a training sequence that starts at a problem is a few-shot prompt.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gsm_mini import Mix, Problem, held_out_questions, iter_problems

TRAINING_SEED = 1_000_000
SHARD = 5_000
MIX = Mix(low=0.0, high=1.0)
QUESTION_WEIGHT = 0.1


@dataclass(frozen=True)
class Stream:
    """tokens [N] int32, weights [N] float32 (loss weight of predicting that token), starts [P]."""

    tokens: NDArray[np.int32]
    weights: NDArray[np.float32]
    starts: NDArray[np.int64]


def prompt_text(problem: Problem) -> str:
    """A question as the evaluation asks it."""
    return f"Question: {problem.question}\nAnswer:"


def shard_problems(shard: int, mix: Mix = MIX) -> Iterator[Problem]:
    """Training problems of one shard; questions of the frozen splits are left out."""
    held_out = held_out_questions()
    fresh = (p for p in iter_problems(TRAINING_SEED + shard, mix) if p.question not in held_out)
    return islice(fresh, SHARD)


def encode_problem(tokenizer: Tokenizer, problem: Problem) -> tuple[list[int], list[int]]:
    """Ids of the prompt and of the answer with the blank line that ends it."""
    prompt = tokenizer.encode(prompt_text(problem)).ids
    return prompt, tokenizer.encode(f" {problem.answer}\n\n").ids


def build_stream(tokenizer_path: Path, shards: int, workers: int) -> Stream:
    """Generate and encode `shards` shards in `workers` processes."""
    jobs = [(str(tokenizer_path), shard) for shard in range(shards)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool:
        parts = pool.map(_encode_shard, jobs, chunksize=1)
    lengths = np.concatenate([lengths for _, _, lengths in parts])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    return Stream(
        np.concatenate([tokens for tokens, _, _ in parts]).astype(np.int32),
        np.concatenate([weights for _, weights, _ in parts]),
        starts,
    )


def _encode_shard(
    job: tuple[str, int],
) -> tuple[NDArray[np.uint16], NDArray[np.float32], NDArray[np.int64]]:
    path, shard = job
    tokenizer = Tokenizer.from_file(path)
    tokens: list[int] = []
    weights: list[float] = []
    lengths = []
    for problem in shard_problems(shard):
        prompt, answer = encode_problem(tokenizer, problem)
        tokens += prompt + answer
        weights += [QUESTION_WEIGHT] * len(prompt) + [1.0] * len(answer)
        lengths.append(len(prompt) + len(answer))
    return (
        np.array(tokens, dtype=np.uint16),
        np.array(weights, dtype=np.float32),
        np.array(lengths, dtype=np.int64),
    )
