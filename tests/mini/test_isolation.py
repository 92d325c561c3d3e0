"""Memory: steps change only their own pages, and nothing foreign reaches a result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import pytest
import torch
from test_rowwise import SHORT
from tiny import prompt, request, tiny_model, tiny_session
from torch import Tensor
from truth import REAL_FORWARD

from evalsuite.mini import runner as runner_module
from evalsuite.mini.caches import LinearCache, SparseCache
from evalsuite.mini.engine import Session
from evalsuite.mini.forced import accept_counts
from evalsuite.mini.sequence import Sequence

PROMPTS = (1, 4, 15, 16, 17, 30, 33)


@functools.cache
def shared_session(graph: bool, k: int, share_slots: bool) -> Session:
    """A session per kind; prefix caching is off where its hits would differ between two runs."""
    options = {"graph": True, "graph_batches": (3,)} if graph else {}
    return tiny_session(
        tiny_model(1, SHORT),
        k=k,
        share_slots=share_slots,
        max_num_seqs=5,
        shuffle_seed=7,
        **options,
    )


KINDS = [(False, 0, True), (False, 4, False), (True, 4, False), (True, 5, True)]


def sparse_caches(session: Session) -> Iterator[tuple[str, SparseCache]]:
    """Sparse layers' caches by name."""
    for index, cache in enumerate(session.caches.layers):
        if isinstance(cache, SparseCache):
            yield f"layer{index}", cache
    if session.caches.mtp is not None:
        yield "mtp", session.caches.mtp


def linear_caches(session: Session) -> Iterator[tuple[str, LinearCache]]:
    """Linear layers' caches by name."""
    for index, cache in enumerate(session.caches.layers):
        if isinstance(cache, LinearCache):
            yield f"layer{index}", cache


def owned(session: Session, sequences: list[Sequence], history: bool) -> dict[str, Tensor]:
    """Masks over the first dimension of every tensor: what belongs to these requests.

    With `history` all that later steps may read, cached prefixes included; without it only what a
    step may write: computed positions and their pools are left out.
    """
    block, kpool = session.options.block_size, session.model.config.index_kpool
    shape = session.caches.shape
    slots, requests = (
        torch.zeros(shape.num_slots, dtype=torch.bool),
        torch.zeros(shape.num_requests, dtype=torch.bool),
    )
    pools = torch.zeros(shape.num_slots // kpool, dtype=torch.bool)
    for sequence in sequences:
        start = 0 if history else sequence.computed
        for position in range(start, len(sequence.blocks) * block):
            slots[sequence.blocks[position // block] * block + position % block] = True
        for pool in range(start // kpool, len(sequence.blocks) * block // kpool):
            per_block = block // kpool
            pools[sequence.blocks[pool // per_block] * per_block + pool % per_block] = True
        requests[sequence.slot] = True
    for number in session.pool._hash_of if history else ():
        slots[number * block : (number + 1) * block] = True
        pools[number * block // kpool : (number + 1) * block // kpool] = True
    masks: dict[str, Tensor] = {}
    for name, _ in sparse_caches(session):
        masks |= {f"{name}.latent": slots, f"{name}.pool": pools, f"{name}.ring": requests}
    for name, _ in linear_caches(session):
        masks |= {f"{name}.conv": requests, f"{name}.state": requests}
    return masks


def readable(session: Session) -> dict[str, Tensor]:
    """Masks of what a step may read: not what is left over behind its requests' last tokens."""
    running = session.scheduler.running
    masks, unwritten = owned(session, running, history=True), owned(session, running, history=False)
    for name, mask in masks.items():
        if name.endswith(("latent", "pool")):
            mask &= ~unwritten[name]
    return masks


def with_trash(masks: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same masks with the slots that padded rows may write to."""
    out = {name: mask.clone() for name, mask in masks.items()}
    for name, mask in out.items():
        mask[1 if name.endswith(("latent", "pool")) else 0] = True
    return out


def fill(session: Session, masks: dict[str, Tensor], value: Callable[[Tensor], Tensor]) -> None:
    """Overwrite what the masks leave out, but for the zero slot."""
    for name, tensor in session.caches.tensors().items():
        if name not in masks:
            continue
        outside = ~masks[name]
        if name.endswith("latent"):
            outside[0] = False
        tensor[outside] = value(tensor[outside])


def canary(part: Tensor) -> Tensor:
    """Values that no step would write."""
    return torch.full_like(part, -7777.0) + torch.arange(part.numel()).view_as(part) % 13


def start(session: Session, names: str) -> list[Sequence]:
    """Queue requests of several lengths and budgets, with forced rejections."""
    session.acceptance = accept_counts([2, 0, 4, 1, 3])
    return [
        session.scheduler.add(request(f"{names}{i}", prompt(n, i), 6 + i))
        for i, n in enumerate(PROMPTS)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_changes_nothing_but_its_requests_own_pages(kind: tuple[bool, int, bool]) -> None:
    session = shared_session(*kind)
    start(session, "canary")
    real_run, steps = session.runner.run, 0

    def run(decode, prefill, bounds, snapshots):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        sequences = [spec.sequence for spec in decode + prefill]
        everyone = owned(session, session.scheduler.running, history=True)
        fill(session, everyone, canary)
        before = {name: t.clone() for name, t in session.caches.tensors().items()}
        out = real_run(decode, prefill, bounds, snapshots)
        allowed = with_trash(owned(session, sequences, history=False))
        kept = {slot for _, _, slot in snapshots}
        for name, tensor in session.caches.tensors().items():
            same = (tensor == before[name]).flatten(1).all(1)
            if name in allowed:
                same |= allowed[name]
            else:
                same[list(kept)] = True
            assert same.all(), f"{name}: foreign entries {(~same).nonzero().flatten().tolist()}"
        for name, cache in sparse_caches(session):
            assert not cache.latent[0].any(), f"{name}: the zero slot was written"
        return out

    with mock.patch.object(session.runner, "run", run):
        while session.scheduler.busy:
            session.step()
    assert steps > 8


def poisoned_answers(session: Session, names: str, poison: bool) -> list[list[int]]:
    """Tokens and drafts of a run; with `poison` NaN before each step in all that is not its own."""
    sequences, seen = start(session, names), []
    real_run = session.runner.run

    def run(*args):  # type: ignore[no-untyped-def]
        if poison:
            live = readable(session)
            fill(session, live, lambda part: torch.full_like(part, float("nan")))
        out = real_run(*args)
        seen.extend([*e.tokens, -1, *e.drafts] for e in out)
        return out

    with mock.patch.object(session.runner, "run", run):
        while session.scheduler.busy:
            session.step()
    return [*seen, *(s.tokens for s in sequences)]


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_and_trash_memory_full_of_nan_changes_nothing(kind: tuple[bool, int, bool]) -> None:
    session = shared_session(*kind)
    poisoned_answers(session, "first", poison=False)  # both runs below meet the same prefixes
    clean = poisoned_answers(session, "clean", poison=False)
    assert poisoned_answers(session, "dirty", poison=True) == clean
    session._start_over()
    for tensor in session.caches.tensors().values():
        tensor.zero_()


def test_unselected_rows_full_of_nan_change_nothing() -> None:
    session = tiny_session(tiny_model(), k=2)
    start(session, "row")
    checked = 0

    def forward(model, tokens, caches, meta):  # type: ignore[no-untyped-def]
        nonlocal checked
        saved = {name: t.clone() for name, t in caches.tensors().items()}
        selected: list[Tensor] = []

        def select(*args):  # type: ignore[no-untyped-def]
            selected.append(model.ops.select_keys(*args))
            return selected[-1]

        watched = replace(model, ops=model.ops._replace(select_keys=select))
        clean = REAL_FORWARD(watched, tokens, caches, meta)
        for name, tensor in caches.tensors().items():
            tensor.copy_(saved[name])
        for slots, (_, cache) in zip(selected, sparse_caches(session), strict=False):
            unused = torch.ones(len(cache.latent), dtype=torch.bool)
            unused[slots.flatten()] = False
            unused[0] = False
            checked += int((cache.latent[unused].abs().sum(1) > 0).sum())
            cache.latent[unused] = float("nan")
        dirty = REAL_FORWARD(model, tokens, caches, meta)
        assert torch.equal(clean, dirty)
        for name, tensor in caches.tensors().items():
            tensor.copy_(saved[name])
        return REAL_FORWARD(model, tokens, caches, meta)

    with mock.patch.object(runner_module, "forward", forward):
        while session.scheduler.busy:
            session.step()
    assert checked > 50, "nothing unselected was there to poison"
