"""The miniature's engine behind the interface that the runner drives."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import torch

import evalsuite
from evalsuite.arms import Arm
from evalsuite.engines.base import Answer, EngineDescription, Request
from evalsuite.errors import UsageError
from evalsuite.mini import engine as mini
from evalsuite.mini.checkpoint import EMBEDDED, Checkpoint, load_checkpoint
from evalsuite.mini.checkpoint import cast as cast_tensors
from evalsuite.mini.model import kernels
from evalsuite.mini.model.decoder import Model
from evalsuite.mini.model.sparse_ops import IN_PYTORCH, ROUTE, SparseOps
from evalsuite.mini.sequence import GenerationRequest, check_request
from evalsuite.mini.sequence import Sequence as Answered
from evalsuite.mini.weights import fuse
from evalsuite.records import Evidence, Settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# On a CPU the seven arms together answer fastest at 16, the largest number at once at which
# speculation still pays in all of them (benchmarks/results/engine-cpu.md).
DEFAULT_CONCURRENCY = {"cpu": 16, "cuda": 128}
DEFAULT_BUDGET = {"cpu": 512, "cuda": 8192}
SESSION_OPTIONS = frozenset(
    {
        *("max_num_batched_tokens", "max_model_len", "num_blocks", "num_snapshots", "admit_batch"),
        *("prefix_caching", "share_slots", "fused_drafts", "graph_batches", "shuffle_seed"),
    }
)
# Options that are not a session's.
ENGINE_OPTIONS = frozenset({"threads", "kernels", "indexer"})
KERNELS = ("auto", "torch")
INDEXERS = ("torch", "kernels")
LENGTH_STEP = 64
WARM_UP_TOKENS = 8


def open_engine(
    *,
    model: str | None,
    dtype: str | None,
    device: str | None,
    concurrency: int | None,
    options: dict[str, Any],
) -> MiniEngine:
    """Open the miniature's engine.

    `model` is a folder (None: the embedded checkpoint), `device` cpu or cuda (None: a GPU if torch
    can use one), `dtype` float32 or bfloat16 (None: float32 on a CPU, bfloat16 on a GPU). `options`
    are those of evalsuite.mini.engine.SessionOptions, `threads` (1 on a CPU), and `kernels`: `auto`
    runs attention in bfloat16 on a GPU on the kernels of sparse_mla and otherwise in PyTorch,
    `torch` always in PyTorch. `indexer`: whether the choice of keys runs in PyTorch (`torch`) or,
    where attention does, on kernels too (`kernels`). Raises UsageError.
    """
    where = _device(device)
    chosen = dtype or ("float32" if where.type == "cpu" else "bfloat16")
    if chosen not in DTYPES:
        raise UsageError(f"{chosen!r} is none of {', '.join(DTYPES)}", field="engine.dtype")
    unknown = sorted(set(options) - SESSION_OPTIONS - ENGINE_OPTIONS)
    if unknown:
        raise UsageError("unknown option", field=f"engine.options.{unknown[0]}")
    if concurrency is not None and concurrency < 1:
        raise UsageError(f"{concurrency}: at least 1 is needed", field="engine.concurrency")
    _set_threads(options.get("threads"), where)
    checkpoint = load_checkpoint(Path(model) if model else EMBEDDED)
    with_kernels = _use_kernels(options.get("kernels", "auto"), chosen, where)
    ops = _sparse_ops(with_kernels, options.get("indexer", "torch"))
    if with_kernels:
        kernels.check_supported(checkpoint.config, DTYPES[chosen], where)
    settings = {
        key: _option(key, value) for key, value in options.items() if key not in ENGINE_OPTIONS
    }
    settings.setdefault("max_num_batched_tokens", DEFAULT_BUDGET[where.type])
    settings["max_num_seqs"] = concurrency or DEFAULT_CONCURRENCY[where.type]
    if where.type == "cpu":
        # Tracing a step takes seconds there, and a padded row little.
        few = (min(4, settings["max_num_seqs"]), settings["max_num_seqs"])
        settings.setdefault("graph_batches", tuple(sorted(set(few))))
    else:
        settings.setdefault("admit_batch", max(1, settings["max_num_seqs"] // 8))
    return MiniEngine(checkpoint, chosen, where, settings, ops)


def _use_kernels(choice: Any, dtype: str, device: torch.device) -> bool:
    """Whether attention goes through the kernels of sparse_mla."""
    if choice not in KERNELS:
        allowed = " or ".join(KERNELS)
        raise UsageError(f"{choice!r}: expected {allowed}", field="engine.options.kernels")
    return choice == "auto" and device.type == "cuda" and dtype == "bfloat16"


def _sparse_ops(with_kernels: bool, index: Any) -> SparseOps:
    """What the sparse layers compute with."""
    if index not in INDEXERS:
        allowed = " or ".join(INDEXERS)
        raise UsageError(f"{index!r}: expected {allowed}", field="engine.options.indexer")
    if index == "kernels" and not with_kernels:
        message = "kernels choose keys only where attention is on kernels: bfloat16 on a GPU"
        raise UsageError(message, field="engine.options.indexer")
    if not with_kernels:
        return IN_PYTORCH
    return kernels.ALL if index == "kernels" else kernels.ATTENTION


def _set_threads(threads: Any, device: torch.device) -> None:
    """Use `threads` OpenMP threads; on a CPU one, unless told otherwise.

    The matrices are so small that a second thread costs about what it brings.
    """
    if threads is None:
        threads = 1 if device.type == "cpu" else torch.get_num_threads()
    if type(threads) is not int or threads < 1:
        raise UsageError(f"{threads!r}: expected 1 or more", field="engine.options.threads")
    torch.set_num_threads(threads)


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise UsageError(f"{name!r} is neither cpu nor cuda", field="engine.device")
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("torch sees no GPU; run `evalsuite doctor`", field="engine.device")
    return torch.device(name)


def _option(key: str, value: Any) -> Any:
    field = f"engine.options.{key}"
    kind = {f.name: f.type for f in fields(mini.SessionOptions)}[key]
    if kind == "bool" and not isinstance(value, bool):
        raise UsageError(f"expected true or false, found {value!r}", field=field)
    if kind in ("int", "int | None") and type(value) is not int:
        raise UsageError(f"expected an integer, found {value!r}", field=field)
    if key == "graph_batches":
        if not isinstance(value, list) or not all(type(v) is int for v in value):
            raise UsageError(f"expected a list of integers, found {value!r}", field=field)
        return tuple(value)
    return value


@dataclass(slots=True)
class MiniEngine:
    """A checkpoint in memory; every arm's session shares its weights."""

    checkpoint: Checkpoint
    dtype: str
    device: torch.device
    settings: dict[str, Any]
    ops: SparseOps = IN_PYTORCH
    longest: int = 1024
    _model: Model | None = None

    @property
    def name(self) -> str:
        """The engine's kind."""
        return "mini"

    @property
    def interleaves(self) -> bool:
        """Sessions share the weights and can be open at once."""
        return True

    def model(self) -> Model:
        """The weights in compute type, made at first use."""
        if self._model is None:
            config = self.checkpoint.config
            tensors = cast_tensors(self.checkpoint.tensors, config, DTYPES[self.dtype], self.device)
            route = ROUTE if self.ops is IN_PYTORCH else kernels.ROUTE
            self._model = Model(config, fuse(tensors, config), self.ops, route)
        return self._model

    def options(self, arm: Arm) -> mini.SessionOptions:
        """Session options of one arm."""
        sizes = {"max_model_len": self.longest, **self.settings}
        return mini.SessionOptions(k=arm.mtp, graph=arm.graph, **sizes)

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for a request that this engine can never answer.

        Sessions opened afterwards hold the longest of these requests, unless the options fix
        max_model_len.
        """
        config = self.checkpoint.config
        limit = self.settings.get("max_model_len", config.max_position_embeddings)
        prepared = [self.request(request) for request in requests]
        for request in prepared:
            check_request(request, limit, config.vocab_size)
        longest = max((len(r.prompt) + r.max_tokens for r in prepared), default=LENGTH_STEP)
        self.longest = min(-(-longest // LENGTH_STEP) * LENGTH_STEP, limit)

    def request(self, request: Request) -> GenerationRequest:
        """A request with its prompt as ids and its stops as bytes."""
        ids = request.prompt_ids
        if ids is None:
            ids = tuple(self.checkpoint.tokenizer.encode(request.prompt).ids)
        stops = tuple(stop.encode() for stop in request.stop)
        return GenerationRequest(request.request_id, ids, request.max_tokens, stops)

    def start(self, arm: Arm) -> MiniSession:
        """Open a session for `arm`; captures its graphs."""
        return MiniSession(self, arm)

    def describe(self) -> EngineDescription:
        """What run.json says of this engine."""
        on_gpu = self.device.type == "cuda"
        name = torch.cuda.get_device_name(self.device) if on_gpu else _cpu_name()
        count = 1 if on_gpu else torch.get_num_threads()
        software: Settings = {
            "evalsuite": evalsuite.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        if on_gpu:
            software["cuda"] = torch.version.cuda or torch.version.hip
        kind = "rocm" if on_gpu and torch.version.hip else self.device.type
        return EngineDescription(
            "mini",
            evalsuite.__version__,
            self.checkpoint.folder.name,
            self.checkpoint.model_hash,
            self.dtype,
            {"device": kind, "name": name, "count": count},
            software,
            self.settings["max_num_seqs"],
        )

    def close(self) -> None:
        """Free the weights."""
        self._model = None


class MiniSession:
    """One arm of the miniature's engine."""

    def __init__(self, engine: MiniEngine, arm: Arm) -> None:
        self.engine, self.arm = engine, arm
        self.session = mini.Session(
            engine.model(), engine.checkpoint.tokenizer, engine.options(arm)
        )

    def warm_up(self) -> None:
        """Run every kind of step once on made-up prompts, then start counting anew."""
        vocabulary = self.engine.checkpoint.config.vocab_size
        count = min(self.session.options.max_num_seqs, 4)
        prompt = tuple(2 + i % (vocabulary - 2) for i in range(self.session.options.block_size + 3))
        made_up = [
            GenerationRequest(f"warm-up {i}", (2 + i, *prompt), WARM_UP_TOKENS)
            for i in range(count)
        ]
        for _ in self.session.generate(made_up):
            pass
        self.session.reset_counts()

    def generate(self, requests: Sequence[Request], on_answer: Callable[[Answer], None]) -> None:
        """Answer every request, in the order in which they finish."""
        for finished in self.session.generate([self.engine.request(r) for r in requests]):
            on_answer(_answer(finished))

    def evidence(self) -> Evidence:
        """What happened since the warm-up."""
        session, counters = self.session, self.session.counters
        k = self.arm.mtp
        accepted = counters.accepted_per_position
        graphs = session.runner.graphs
        prefix = session.prefix
        return Evidence(
            engine_version=evalsuite.__version__,
            backend=session.model.route,
            graph_replays=sum(graphs.replays.values()),
            eager_decode_steps=counters.eager_decode_steps,
            steps_by_kind=dict(counters.steps_by_kind),
            routes={kind: "+".join(sorted(names)) for kind, names in counters.routes.items()},
            drafts=counters.drafts,
            drafted_tokens=counters.drafted_tokens,
            accepted_per_position=accepted + [0] * (k - len(accepted)),
            draft_length=session.options.k,
            prefix_hits=prefix.hit_tokens if prefix else 0,
            preemptions=session.scheduler.preemptions,
            asked={"graph": self.arm.graph, "mtp": k, "dtype": self.engine.dtype},
            read_back={
                "graph": bool(session.runner.captured_sizes),
                "mtp": session.caches.shape.num_speculative_tokens,
                "dtype": str(session.caches.dtype).removeprefix("torch."),
            },
        )

    def close(self) -> None:
        """Free the caches and graphs."""
        del self.session


def _answer(sequence: Answered) -> Answer:
    request, first = sequence.request, sequence.first_token
    emitted = tuple(sequence.tokens[len(request.prompt) :])
    return Answer(
        request_id=request.request_id,
        text=sequence.output.decode(errors="replace"),
        token_ids=emitted,
        margins=tuple(sequence.margins),
        finish_reason=cast(Any, sequence.finish_reason),
        prompt_tokens=len(request.prompt),
        output_tokens=len(emitted),
        started=sequence.started,
        ended=sequence.ended,
        ttft_s=None if first is None else first - sequence.started,
        drafted=sequence.drafted_tokens,
        accepted=sequence.accepted_tokens,
        error=None,
    )


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor() or platform.machine()
    return platform.processor() or platform.machine()
