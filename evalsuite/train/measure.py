"""Teacher-forced measures of a checkpoint while it trains; the real score comes from the engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from evalsuite.train.architecture import TrainModel
from evalsuite.train.data import encode_problem
from gsm_mini import Problem

SHOTS = 2
DEPTH = 5


@torch.no_grad()
def measure(
    model: TrainModel,
    tokenizer: Tokenizer,
    problems: Sequence[Problem],
    length: int,
    sparse: bool,
    device: torch.device,
    batch: int = 64,
) -> dict[str, Any]:
    """Share of problems whose every answer token is the argmax, and of right drafts by depth.

    Problems are asked with the two before them as shots. Groups: all, family, step count and
    difficulty in tenths.
    """
    encoded = [encode_problem(tokenizer, p) for p in problems]
    right: dict[str, list[float]] = defaultdict(list)
    drafts = torch.zeros(DEPTH, device=device)
    positions = torch.zeros((), device=device)
    asked = list(range(SHOTS, len(problems)))
    for at in range(0, len(asked), batch):
        chosen = asked[at : at + batch]
        tokens = torch.zeros(len(chosen), length + DEPTH + 1, dtype=torch.int64)
        answer = torch.zeros(len(chosen), length + DEPTH + 1, dtype=torch.bool)
        for row, i in enumerate(chosen):
            shots = [t for j in range(i - SHOTS, i) for part in encoded[j] for t in part]
            prompt, solution = encoded[i]
            ids = (shots + prompt + solution)[: length + DEPTH + 1]
            tokens[row, : len(ids)] = torch.tensor(ids)
            answer[row, len(shots) + len(prompt) : len(ids)] = True
        tokens, answer = tokens.to(device), answer.to(device)
        hidden = model.hidden_states(tokens[:, :length], sparse)
        good = model.logits(hidden).argmax(-1) == tokens[:, 1 : length + 1]
        scored = answer[:, 1 : length + 1]
        whole = (good | ~scored).all(-1).tolist()
        outputs = model.draft_states(hidden, tokens, DEPTH, sparse)
        alive = scored
        positions += scored.sum()
        for depth, out in enumerate(outputs):
            target = tokens[:, depth + 2 : depth + 2 + length]
            alive = alive & (model.logits(out).argmax(-1) == target)
            drafts[depth] += alive.sum()
        for i, ok in zip(chosen, whole, strict=True):
            p = problems[i]
            tenth = min(int(p.difficulty * 10), 9)
            for key in ("all", f"family {p.family}", f"steps {p.steps}", f"difficulty 0.{tenth}"):
                right[key].append(float(ok))
    shares = {key: sum(v) / len(v) for key, v in sorted(right.items())}
    return {"whole_answer": shares, "drafts_right_to_depth": (drafts / positions).tolist()}
