"""The slow reference: each row and each state against the same request computed alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from tiny import tiny_tokenizer
from torch import Tensor

from evalsuite.mini import runner as runner_module
from evalsuite.mini.batch import RowSpec
from evalsuite.mini.caches import LinearCache, SparseCache
from evalsuite.mini.engine import Session, SessionOptions
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.sequence import GenerationRequest, Sequence

TOLERANCE = 2e-4
TIE = 1e-4
REAL_FORWARD = runner_module.forward


@dataclass(frozen=True, slots=True)
class Alone:
    """One history computed by a fresh session in a single prefill.

    hidden [n, H]; token and its margin; drafts behind it; state: the request's own memory by name.
    """

    hidden: Tensor
    token: int
    margin: float
    drafts: list[int]
    state: dict[str, Tensor]


def own_state(session: Session, sequence: Sequence) -> dict[str, Tensor]:
    """What a request has in the caches: everything that its next step may read."""
    found: dict[str, Tensor] = {}
    named = [(f"layer{i}", cache) for i, cache in enumerate(session.caches.layers)]
    for name, cache in [*named, ("mtp", session.caches.mtp)]:
        if isinstance(cache, LinearCache):
            at, taps = sequence.accepted, session.model.config.linear_conv_kernel_dim - 1
            found[f"{name}.state"] = cache.state[sequence.slot, at].clone()
            found[f"{name}.conv"] = cache.conv[sequence.slot, at : at + taps].clone()
        elif cache is not None:
            found |= {f"{name}.{k}": v for k, v in _sparse_state(session, cache, sequence).items()}
    return found


def _sparse_state(session: Session, cache: SparseCache, sequence: Sequence) -> dict[str, Tensor]:
    block, kpool = session.options.block_size, session.model.config.index_kpool
    count = sequence.computed
    slots = torch.tensor([sequence.blocks[p // block] * block + p % block for p in range(count)])
    pools = slots[kpool - 1 :: kpool] // kpool
    tail = torch.arange(count // kpool * kpool, count) % cache.ring.shape[1]
    return {
        "latent": cache.latent[slots].clone(),
        "pool": cache.pool[pools].clone(),
        "tail": cache.ring[sequence.slot, tail].clone(),
    }


class Reference:
    """Computes histories alone, one fresh session each, and remembers them."""

    def __init__(self, model: Model, k: int, share_slots: bool = True) -> None:
        self.model, self.k, self.share_slots = model, k, share_slots
        self._known: dict[tuple[int, ...], Alone] = {}

    def __call__(self, history: list[int]) -> Alone:
        key = tuple(history)
        if key not in self._known:
            self._known[key] = self._compute(history)
        return self._known[key]

    def _compute(self, history: list[int]) -> Alone:
        options = SessionOptions(
            k=self.k,
            max_num_seqs=1,
            max_num_batched_tokens=max(16, len(history)),
            max_model_len=len(history) + 8,
            prefix_caching=False,
            share_slots=self.share_slots,
        )
        session = Session(self.model, tiny_tokenizer(), options)
        sequence = session.scheduler.add(GenerationRequest("alone", tuple(history), 8))
        seen: list[Tensor] = []
        with mock.patch.object(runner_module, "forward", recording(seen)):
            session.step()
        sequence.finish_reason = None
        drafts = list(sequence.drafts)
        state = own_state(session, sequence) if sequence.blocks else {}
        return Alone(seen[0], sequence.tokens[-1], sequence.margins[-1], drafts, state)


def recording(seen: list[Tensor]) -> Any:
    """The model's forward pass, with a copy of its hidden states kept."""

    def forward(*args: Any) -> Tensor:
        seen.append(REAL_FORWARD(*args))
        return seen[-1].clone()

    return forward


@dataclass(slots=True)
class Rows:
    """Rows of one request in one step: its tokens up to the last of them, and their results."""

    history: list[int]
    hidden: Tensor


@dataclass
class Observer:
    """Watches a session's steps and compares them with the reference."""

    session: Session
    reference: Reference
    rows: list[Rows] = field(default_factory=list)
    checked_rows: int = 0
    checked_states: int = 0

    def __post_init__(self) -> None:
        self._run, self._replay = self.session.runner.run, self.session.runner._replay
        self.session.runner.run = self._watch_run  # type: ignore[method-assign]
        self.session.runner._replay = self._watch_replay  # type: ignore[method-assign]

    def _watch_run(self, decode: Any, prefill: Any, bounds: Any, snapshots: Any) -> Any:
        self.rows, seen = [], []
        graphs = bool(self.session.runner.captured_sizes)
        specs = prefill if graphs else decode + prefill
        histories = [_history(spec) for spec in specs]
        with mock.patch.object(runner_module, "forward", recording(seen)):
            out = self._run(decode, prefill, bounds, snapshots)
        if specs:
            parts = seen[0].split([len(spec.tokens) for spec in specs])
            self.rows += [Rows(h, part) for h, part in zip(histories, parts, strict=True)]
        return out

    def _watch_replay(self, decode: list[RowSpec], bounds: Any) -> Any:
        out = self._replay(decode, bounds)
        size = self.session.runner.captured(len(decode))
        hidden = size.outputs.hidden.view(size.batch, size.k + 1, -1)
        for index, spec in enumerate(decode):
            part = hidden[index, : len(spec.tokens)].clone()
            self.rows.append(Rows(_history(spec), part))
        return out

    def step(self) -> list[Sequence]:
        """One step of the session, every row and state of it checked."""
        finished = self.session.step()
        for rows in self.rows:
            self._check_rows(rows)
        for sequence in self.session.scheduler.running:
            if sequence.prefilled:
                self._check_state(sequence)
        return finished

    def _check_rows(self, rows: Rows) -> None:
        count = len(rows.hidden)
        expected = self.reference(rows.history).hidden[-count:]
        error = (rows.hidden - expected).abs().amax(1)
        assert torch.isfinite(rows.hidden).all(), "a row is not finite"
        assert error.max() < TOLERANCE, f"rows {error.tolist()} of a step at {len(rows.history)}"
        head = self.session.model.weights.head
        wrong = (rows.hidden @ head.T - expected @ head.T).abs().max()
        assert wrong < 10 * TOLERANCE, f"logits are off by {wrong}"
        self.checked_rows += count

    def _check_state(self, sequence: Sequence) -> None:
        alone = self.reference(sequence.tokens[: sequence.computed])
        assert len(sequence.tokens) == sequence.computed + 1
        if alone.margin < TIE:
            return
        assert sequence.tokens[-1] == alone.token, "another next token"
        state = own_state(self.session, sequence)
        assert state.keys() == alone.state.keys()
        for name, expected in alone.state.items():
            found = state[name]
            assert found.shape == expected.shape, name
            if found.numel():
                assert (found - expected).abs().max() < TOLERANCE, f"{name} at {sequence.computed}"
        assert sequence.drafts == alone.drafts, f"drafts at {sequence.computed}"
        self.checked_states += 1


def _history(spec: RowSpec) -> list[int]:
    return [*spec.sequence.tokens[: spec.start], *spec.tokens]


def drain(observer: Observer) -> list[Sequence]:
    """Run the session's requests to their end; returns them as they finish."""
    done: list[Sequence] = []
    while observer.session.scheduler.busy:
        done += observer.step()
        observer.session.scheduler.check()
    return done
