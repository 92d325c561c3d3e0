"""Greedy answers of the engine are those of transformers' `generate` on the same checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from hf_reference import HeadedModel, load_reference
from transformers import DynamicCache

from evalsuite.arms import parse_arm
from evalsuite.engines.base import Answer, Request
from evalsuite.engines.mini import open_engine
from evalsuite.harness import HarnessTask
from evalsuite.mini.checkpoint import EMBEDDED

ITEMS = 50
GROUP = 10
# Far above float32's rounding of a logit: behind a smaller margin either token is right.
TIE = 1e-3


class Asked(NamedTuple):
    """One item: its request and its prompt's ids."""

    request: Request
    ids: list[int]


def chosen_items(task: HarnessTask, encode: object) -> list[list[Asked]]:
    """Five groups of ten items whose prompts have equally many tokens: batches without padding."""
    groups: dict[int, list[Asked]] = defaultdict(list)
    for entry in task.items:
        ids = encode(entry.prompt)  # type: ignore[operator]
        generation = task.generation
        request = Request(
            entry.item.item_id, entry.prompt, generation.max_tokens, generation.stops, tuple(ids)
        )
        groups[len(ids)].append(Asked(request, ids))
    full = [group[:GROUP] for _, group in sorted(groups.items()) if len(group) >= GROUP]
    return full[:: len(full) // (ITEMS // GROUP)][: ITEMS // GROUP]


def reference_tokens(
    reference: HeadedModel, prefix: list[int], group: Sequence[Asked], count: int
) -> list[list[int]]:
    """`count` greedy tokens of each prompt of a group, from `generate` on a shared prefix."""
    cache = DynamicCache(config=reference.config)
    with torch.no_grad():
        reference.model(torch.tensor([prefix]), past_key_values=cache, use_cache=True)
    cache.reorder_cache(torch.zeros(len(group), dtype=torch.int64))
    prompts = torch.tensor([asked.ids for asked in group])
    out = reference.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        past_key_values=cache,
        max_new_tokens=count,
        do_sample=False,
    )
    return out[:, prompts.shape[1] :].tolist()


def common_prefix(prompts: Sequence[list[int]]) -> list[int]:
    """The tokens that all prompts begin with."""
    shared = prompts[0]
    for prompt in prompts:
        same = [a == b for a, b in zip(shared, prompt, strict=False)]
        shared = shared[: same.index(False) if False in same else len(same)]
    return shared


def test_fifty_answers_are_those_of_transformers(gsm_mini_task: HarnessTask) -> None:
    engine = open_engine(
        model=None, dtype="float32", device="cpu", concurrency=None, options={"threads": 1}
    )
    tokenizer = engine.checkpoint.tokenizer
    groups = chosen_items(gsm_mini_task, lambda text: tokenizer.encode(text).ids)
    requests = [asked.request for group in groups for asked in group]
    assert len(requests) == ITEMS
    engine.check(requests)
    answers: dict[str, Answer] = {}
    session = engine.start(parse_arm("eager"))
    session.generate(requests, lambda answer: answers.__setitem__(answer.request_id, answer))
    # Equality of empty or constant texts would prove nothing.
    texts = {answer.text or "" for answer in answers.values()}
    assert len(texts) == ITEMS and all("####" in text for text in texts)
    reference, _ = load_reference(EMBEDDED)
    ties = []
    for group in groups:
        ours = [answers[asked.request.request_id] for asked in group]
        prefix = common_prefix([asked.ids for asked in group])
        count = max(len(answer.token_ids or ()) for answer in ours)
        for answer, expected in zip(
            ours, reference_tokens(reference, prefix, group, count), strict=True
        ):
            tokens, margins = answer.token_ids, answer.margins
            assert tokens and margins
            apart = [i for i, token in enumerate(tokens) if token != expected[i]]
            if apart:
                ties.append((answer.request_id, apart[0], margins[apart[0]]))
    print(f"diverged (item, token, margin): {ties or 'none'}")
    assert [tie for tie in ties if tie[2] > TIE] == []
    assert len(ties) <= 1
    smallest = sorted(min(a.margins or (0.0,)) for a in answers.values())
    print(f"smallest margins: {[round(m, 4) for m in smallest[:5]]}")
