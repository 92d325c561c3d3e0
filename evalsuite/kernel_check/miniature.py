"""The miniature on somebody's kernel, against the miniature in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch

from evalsuite.engines.mini import DTYPES, open_engine
from evalsuite.harness import load_task
from evalsuite.harness import select as select_items
from evalsuite.kernel_check.loading import ForeignKernel
from evalsuite.kernel_check.numbers import declared_kinds
from evalsuite.kernel_check.outcome import Case, tried
from evalsuite.mini.checkpoint import Checkpoint
from evalsuite.mini.engine import Session
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.kernels import ROUTE, triton_attention
from evalsuite.mini.model.sparse_ops import SparseOps
from evalsuite.mini.options import SessionOptions
from evalsuite.mini.sequence import GenerationRequest
from evalsuite.mini.sequence import Sequence as Answered
from sparse_mla.architecture import architecture_of
from sparse_mla.capability import ALL_ROW_KINDS
from sparse_mla.geometry import Geometry

QUESTION = "Question:"
DRAFTS = 2


class Scale(NamedTuple):
    """How much is asked of a device's miniature, and how far rounding moves a logit there."""

    items: int
    max_tokens: int
    graphs: bool
    margin: float


# In bfloat16 hard top-k turns rounding into other keys, and logits can move by more than 1.
SCALES = {"cpu": Scale(3, 24, False, 0.01), "cuda": Scale(32, 64, True, 2.0)}


def mini_cases(kernel: ForeignKernel, device: torch.device) -> Iterator[Case]:
    """Cases of the eager arm, of the graph arm on a GPU, and of one that drafts."""
    dtype = "float32" if device.type == "cpu" else "bfloat16"
    engine = open_engine(
        model=None,
        dtype=dtype,
        device=device.type,
        concurrency=None,
        options={"kernels": "torch"},
    )
    config = engine.checkpoint.config
    geometry = Geometry(
        architecture_of(device),
        str(DTYPES[dtype]).removeprefix("torch."),
        config.kv_lora_rank,
        0,
        config.num_attention_heads,
        ALL_ROW_KINDS,
        config.index_width,
    )
    kinds = declared_kinds(kernel, geometry)
    if not kinds:
        reason = kernel.entry.refusal(geometry, False)
        yield Case("miniature", "all arms", "skipped", f"another geometry: {reason}")
        return
    scale = SCALES[device.type]
    plain = engine.model()
    foreign = replace(plain, ops=SparseOps(triton_attention), route=ROUTE)
    arms = {"eager": (0, False), f"eager-mtp{DRAFTS}": (DRAFTS, False)}
    if scale.graphs:
        arms = {"eager": (0, False), "graph": (0, True), f"mtp{DRAFTS}": (DRAFTS, True)}
    for name, (k, graph) in arms.items():
        answered: list[Run] = []

        def attempt(k: int = k, graph: bool = graph, out: list[Run] = answered) -> str | None:
            run = _run(foreign, engine.checkpoint, scale, k, graph)
            out.append(run)
            return _unequal(run, _run(plain, engine.checkpoint, scale, k, graph), scale.margin)

        yield tried("miniature", f"{name}: answers as in PyTorch", attempt)
        if answered:
            routes = answered[0].routes
            problem = _misrouted(routes, kernel.entry.name, kinds)
            told = ", ".join(f"{kind} {'+'.join(sorted(routes[kind]))}" for kind in sorted(routes))
            yield Case("route", f"{name}: {told}", "fail" if problem else "pass", problem or "")


class Run(NamedTuple):
    """Answers by item, and the kernels of each kind of row."""

    answers: dict[str, Answered]
    routes: dict[str, set[str]]


def _run(model: Model, checkpoint: Checkpoint, scale: Scale, k: int, graph: bool) -> Run:
    task, tokenizer = load_task("gsm_mini"), checkpoint.tokenizer
    asked = [
        # The question alone: a long prompt adds time and no kind of row.
        GenerationRequest(
            entry.item.item_id,
            tuple(tokenizer.encode(entry.prompt[entry.prompt.rindex(QUESTION) :]).ids),
            scale.max_tokens,
            (QUESTION.encode(),),
        )
        for entry in select_items(task.items, scale.items)
    ]
    longest = max(len(request.prompt) for request in asked) + scale.max_tokens
    options = SessionOptions(k=k, graph=graph, max_model_len=-(-longest // 64) * 64)
    session = Session(model, tokenizer, options)
    answers = {one.request.request_id: one for one in session.generate(asked)}
    return Run(answers, session.counters.routes)


def _unequal(found: Run, expected: Run, margin: float) -> str | None:
    """Where answers differ by more than rounding, or None.

    Up to the first other token the margins agree within `margin`, and that token was chosen by
    less than it.
    """
    for item, wanted in expected.answers.items():
        got = found.answers[item]
        start = len(wanted.request.prompt)
        ours, theirs = got.tokens[start:], wanted.tokens[start:]
        for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                if wanted.margins[at] > margin:
                    return (
                        f"item {item}, token {at}: {one} for {other}, which PyTorch chose by "
                        f"{wanted.margins[at]:.3g}"
                    )
                break
            gap = abs(got.margins[at] - wanted.margins[at])
            if not gap <= margin:
                return f"item {item}, token {at}: the margin differs by {gap:.3g}"
    return None


def _misrouted(routes: dict[str, set[str]], name: str, kinds: list[str]) -> str | None:
    """A kind of row that did not run on the kernel although it declares it, or did although not."""
    every = set(kinds) == ALL_ROW_KINDS
    for kind, names in routes.items():
        if (kind in kinds) != (name in names) or (every and names != {name}):
            return f"{kind} rows ran on {', '.join(sorted(names))}"
    return None
