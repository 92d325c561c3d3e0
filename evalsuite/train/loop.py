"""The training loop: AdamW on captured steps, dense attention first and sparse after."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from evalsuite.train.architecture import DRAFT_DEPTH, Architecture, Losses, TrainModel
from evalsuite.train.data import Stream
from evalsuite.train.parameters import compute_copies, decays, initial_parameters

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """What decides a training run besides architecture and data.

    `rows` positions are drawn for the costly losses (None: as many as the architecture wants).
    """

    seconds: float = 420.0
    max_steps: int = 100_000
    batch: int = 48
    length: int = 1024
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    warmup_steps: int = 100
    decay_share: float = 0.4
    dense_share: float = 0.45
    rows: int | None = None
    bias_speed: float = 1e-3
    seed: int = 1
    dtype: torch.dtype = torch.bfloat16


class Batch(NamedTuple):
    """Static input buffers of one step: tokens, weights [B, T + depth + 1], rows [R]."""

    tokens: Tensor
    weights: Tensor
    rows: Tensor


class Trainer:
    """Parameters, optimiser and the (captured) step."""

    def __init__(
        self, architecture: Architecture, plan: Plan, stream: Stream, device: torch.device
    ) -> None:
        self.architecture, self.plan, self.device = architecture, plan, device
        self.params = initial_parameters(architecture.specs, plan.seed, device)
        self.tokens = torch.from_numpy(stream.tokens).to(device)
        self.weights = torch.from_numpy(stream.weights).to(device)
        width = plan.length + DRAFT_DEPTH + 1
        usable = stream.starts[stream.starts + width <= len(stream.tokens)]
        self.starts = torch.from_numpy(usable).to(device)
        self.generator = torch.Generator(device=device).manual_seed(plan.seed)
        self.batch = Batch(
            torch.zeros(plan.batch, width, dtype=torch.int32, device=device),
            torch.zeros(plan.batch, width, device=device),
            torch.zeros(plan.rows or architecture.rows, dtype=torch.int64, device=device),
        )
        self.optimizer = self._optimizer()
        self.rate = self.optimizer.param_groups[0]["lr"]

    def _optimizer(self) -> torch.optim.AdamW:
        trained = {n: p for n, p in self.params.items() if p.requires_grad}
        groups = [
            {
                "params": [p for n, p in trained.items() if decays(n, p) is flag],
                "weight_decay": self.plan.weight_decay if flag else 0.0,
            }
            for flag in (True, False)
        ]
        on_gpu = self.device.type == "cuda"
        rate = torch.tensor(self.plan.learning_rate, device=self.device)
        return torch.optim.AdamW(
            groups, lr=rate, betas=(0.9, 0.95), eps=1e-8, capturable=on_gpu, fused=on_gpu
        )

    def draw(self) -> None:
        """Fill the static buffers with the next random sequences; each starts at a problem."""
        width = self.batch.tokens.shape[1]
        chosen = torch.randint(
            len(self.starts), (self.plan.batch,), generator=self.generator, device=self.device
        )
        at = self.starts[chosen][:, None] + torch.arange(width, device=self.device)
        self.batch.tokens.copy_(self.tokens[at])
        self.batch.weights.copy_(self.weights[at])
        low = min(self.architecture.first_row, self.plan.length // 2)
        self.batch.rows.random_(low, self.plan.length, generator=self.generator)

    def set_rate(self, progress: float, step: int) -> None:
        """Warm up by steps, stay, then fall linearly to zero by share of the run."""
        falling = (1.0 - progress) / self.plan.decay_share
        rate = self.plan.learning_rate * min(1.0, falling, (step + 1) / self.plan.warmup_steps)
        self.rate.fill_(max(rate, 0.0))

    def step(self, sparse: bool) -> Losses:
        """One optimiser step on the static buffers."""
        for group in self.optimizer.param_groups:
            for p in group["params"]:
                p.grad = None
        copies = compute_copies(self.params, self.architecture.specs, self.plan.dtype)
        model = self.architecture.build(copies, False)
        result = model.losses(*self.batch, sparse)
        result.total.backward()
        trained = [p for p in self.params.values() if p.grad is not None]
        torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=True)
        self.optimizer.step()
        self._balance(model)
        return result.detached()

    @torch.no_grad()
    def _balance(self, model: TrainModel) -> None:
        for prefix, load in model.loads.items():
            target = load.mean()
            self.params[f"{prefix}gate.e_score_correction_bias"].add_(
                torch.sign(target - load), alpha=self.plan.bias_speed
            )

    def captured(self, sparse: bool) -> Callable[[], Losses]:
        """The step as a CUDA graph; on a CPU the plain step."""
        if self.device.type != "cuda":
            return lambda: self.step(sparse)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.draw()
                self.step(sparse)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.step(sparse)

        def replay() -> Losses:
            graph.replay()
            return out

        return replay


def train(trainer: Trainer) -> Iterator[tuple[int, float, float, Losses]]:
    """Run the plan; yields (step, seconds, progress, losses) every 100 steps and at the end."""
    plan, started, step, progress = trainer.plan, time.monotonic(), 0, 0.0
    trainer.set_rate(0.0, 0)
    selects = trainer.architecture.selects
    for sparse, until in ((False, plan.dense_share), (True, 1.0)) if selects else ((False, 1.0),):
        run = trainer.captured(sparse)
        log.info(
            "captured the %s step after %.1f s",
            "sparse" if sparse else "dense",
            time.monotonic() - started,
        )
        while progress < until:
            trainer.draw()
            trainer.set_rate(progress, step)
            result = run()
            step += 1
            if step % 20 == 0 and trainer.device.type == "cuda":
                torch.cuda.synchronize()
            elapsed = time.monotonic() - started
            progress = max(elapsed / plan.seconds, step / plan.max_steps)
            if step % 100 == 0 or progress >= 1.0:
                yield step, elapsed, progress, result
