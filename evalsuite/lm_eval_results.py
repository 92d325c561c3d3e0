"""What lm-eval writes of an evaluation: `results_*.json` and `samples_<task>_*.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalsuite.errors import UsageError
from evalsuite.storage import decode

STRICT, FLEXIBLE = "strict-match", "flexible-extract"


class TaskSettings(msgspec.Struct, frozen=True):
    """The settings of one task that decide its scores."""

    output_type: str
    doc_to_text: str
    generation_kwargs: dict[str, Any] = {}
    description: str | None = None


class Invocation(msgspec.Struct, frozen=True):
    """How lm-eval was called."""

    model: str
    model_args: str | dict[str, Any] | None = None
    gen_kwargs: str | dict[str, Any] | None = None


class Results(msgspec.Struct, frozen=True):
    """The parts of results_*.json that are used; the rest is passed over."""

    configs: dict[str, TaskSettings]
    config: Invocation
    versions: dict[str, str | int | float | None]
    shots: dict[str, int | None] = msgspec.field(name="n-shot")
    counts: dict[str, dict[str, int]] = msgspec.field(name="n-samples")
    lm_eval_version: str | None = None
    transformers_version: str | None = None
    model_name: str | None = None
    chat_template: str | None = None


class Sample(msgspec.Struct, frozen=True):
    """One answer under one filter: a line of samples_*.jsonl."""

    doc_id: int
    doc: dict[str, Any]
    target: str | int | float
    arguments: dict[str, dict[str, Any]] | list[list[Any]]
    resps: list[list[str]]
    filtered_resps: list[str]
    filter: str = "none"

    def prompt(self) -> str:
        """Return the prompt that was sent. Raises ValueError where the line does not hold one."""
        first: Any = None
        if isinstance(self.arguments, dict):
            first = self.arguments.get("gen_args_0", {}).get("arg_0")
        elif self.arguments and self.arguments[0]:
            first = self.arguments[0][0]
        if not isinstance(first, str):
            raise ValueError("holds no prompt")
        return first


class Evaluation(msgspec.Struct, frozen=True):
    """One task of one evaluation: its settings, and its lines by document and filter."""

    task: str
    results: Results
    samples: dict[int, dict[str, Sample]]
    file: Path


def read_evaluation(place: Path, task: str | None) -> Evaluation:
    """Read the evaluation at `place`, a results file or a folder that holds one.

    `task` is needed where several were run. Raises UsageError naming file, line and field for what
    is missing, torn or ambiguous.
    """
    path = _results_file(place)
    results = decode(_bytes(path), Results, path, error=UsageError)
    name = _task(results, task, path)
    if results.configs[name].output_type != "generate_until":
        raise UsageError(f"task {name} does not generate text", file=path, field="output_type")
    stamp = path.stem.removeprefix("results")
    samples_path = path.with_name(f"samples_{name}{stamp}.jsonl")
    samples = _samples(samples_path)
    planned = results.counts.get(name, {}).get("effective")
    if planned is not None and planned != len(samples):
        told = f"holds {len(samples)} documents, {path.name} speaks of {planned}"
        raise UsageError(told, file=samples_path)
    return Evaluation(name, results, samples, samples_path)


def _results_file(place: Path) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise UsageError("no such file or folder", file=place)
    found = sorted(place.rglob("results_*.json"))
    if not found:
        raise UsageError("holds no results_*.json of lm-eval", file=place)
    if len(found) > 1:
        listed = ", ".join(str(path.relative_to(place)) for path in found)
        raise UsageError(f"holds several results, name one of them: {listed}", file=place)
    return found[0]


def _task(results: Results, task: str | None, path: Path) -> str:
    names = sorted(results.configs)
    if task is None and len(names) == 1:
        return names[0]
    if task is None or task not in names:
        raise UsageError(
            f"holds the tasks {', '.join(names)}: name one of them", file=path, field="task"
        )
    return task


def _samples(path: Path) -> dict[int, dict[str, Sample]]:
    found: dict[int, dict[str, Sample]] = {}
    for line, sample in _lines(path):
        by_filter = found.setdefault(sample.doc_id, {})
        if sample.filter in by_filter:
            told = f"document {sample.doc_id} has filter {sample.filter} twice"
            raise UsageError(told, file=path, line=line, field="filter")
        by_filter[sample.filter] = sample
    if not found:
        raise UsageError("is empty", file=path)
    return dict(sorted(found.items()))


def _lines(path: Path) -> Iterator[tuple[int, Sample]]:
    data = _bytes(path)
    if data and not data.endswith(b"\n"):
        raise UsageError("the last line is torn", file=path, line=data.count(b"\n") + 1)
    for line, text in enumerate(data.split(b"\n")[:-1], start=1):
        sample = decode(text, Sample, path, line, error=UsageError)
        if not sample.resps or not sample.resps[0]:
            raise UsageError("holds no answer", file=path, line=line, field="resps")
        yield line, sample


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        hint = "; run lm-eval with --log_samples" if path.name.startswith("samples_") else ""
        raise UsageError(f"cannot be read: {problem.strerror}{hint}", file=path) from None
