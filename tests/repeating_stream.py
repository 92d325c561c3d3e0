"""Training data for tests that train."""

from __future__ import annotations

import numpy as np

from evalsuite.train.data import Stream


def repeating_stream(vocab: int) -> Stream:
    """A stream that is easy to learn: a few short problems over and over."""
    generator = np.random.default_rng(1)
    problems = generator.integers(2, vocab, (4, 20))
    tokens = problems[generator.integers(0, 4, 300)].flatten().astype(np.int32)
    starts = np.arange(0, len(tokens), 20, dtype=np.int64)
    return Stream(tokens, np.ones(len(tokens), dtype=np.float32), starts)
