"""Results that lm-eval already wrote become a run, to be judged and compared like any other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
from jinja2 import Environment, StrictUndefined, TemplateError
from rich.console import RenderableType

from evalsuite.arms import parse_arm
from evalsuite.assess import ASSESSMENT_VERSION, assess
from evalsuite.errors import EXIT_PASS, UsageError
from evalsuite.harness.task import item_id
from evalsuite.lm_eval_results import Evaluation, Invocation, read_evaluation
from evalsuite.paths import new_folder
from evalsuite.protocol import Protocol, Sampling, sha256_text
from evalsuite.recordlog import RunLock
from evalsuite.records import SCHEMA, EngineInfo, Evidence, Item, Plan, Record, Run
from evalsuite.redact import redact
from evalsuite.scoring import flexible_extract, strict_match
from evalsuite.storage import read_items, read_run, write_lines, write_struct

KIND = "lm-eval"
UNKNOWN = "unknown"
DEFAULT_MAX_TOKENS = 256
# lm-eval writes nothing from which these could be checked.
UNAVAILABLE = ("route", "acceptance", "wall")

_TOKEN_BUDGETS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


@dataclass(frozen=True)
class Imported:
    """What became of an import."""

    folder: Path
    arm: str
    items: int
    correct: int
    exit_code: int = EXIT_PASS

    def as_json(self) -> dict[str, Any]:
        """Return the one object of `--json`."""
        return {
            "run": str(self.folder),
            "arm": self.arm,
            "items": self.items,
            "correct": self.correct,
        }

    def renderables(self) -> list[RenderableType]:
        """Return what a person reads."""
        return [f"{self.arm}: {self.correct} of {self.items} answers right", f"run: {self.folder}"]


def import_lm_eval(
    place: Path, arm: str, *, task: str | None = None, out: Path | None = None
) -> Imported:
    """Make a run of lm-eval's results at `place`, as the arm named `arm`.

    `out` may be a run that was imported before: the arm joins it where protocol and items agree.
    Raises UsageError, with nothing written, for whatever is wrong.
    """
    parse_arm(arm)
    evaluation = read_evaluation(place, task)
    rendered = list(_rendered(evaluation))
    items = [item for item, _, _ in rendered]
    if len({item.item_id for item in items}) < len(items):
        raise UsageError("holds one question twice", file=evaluation.file)
    prefixes = [prefix for _, prefix, _ in rendered]
    texts = [answers for _, _, answers in rendered]
    run = _run(evaluation, arm, items, prefixes, len(texts[0]))
    records = list(_records(arm, items, texts, evaluation))
    folder = out or new_folder(run.suite)
    _write(folder, run, items, arm, records)
    right = sum(record.outcome == "correct" for record in records)
    return Imported(folder, arm, len(records), right)


def _rendered(evaluation: Evaluation) -> Iterator[tuple[Item, str | None, list[str]]]:
    """Yield each item with what stands before its question, None where that cannot be told."""
    settings = evaluation.results.configs[evaluation.task]
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(
        settings.doc_to_text
    )
    repeats: set[int] = set()
    for number, by_filter in evaluation.samples.items():
        sample = next(iter(by_filter.values()))
        try:
            asked = template.render(**sample.doc)
            prompt = sample.prompt()
        except (TemplateError, ValueError) as problem:
            raise UsageError(f"document {number}: {problem}", file=evaluation.file) from None
        question = str(sample.doc.get("question", asked))
        gold = str(sample.target).rpartition("####")[2].strip().replace(",", "")
        item = Item(item_id=item_id(question, gold), question=question, gold=gold)
        repeats.add(len(sample.resps[0]))
        if len(repeats) > 1:
            raise UsageError(
                f"document {number} has another number of answers",
                file=evaluation.file,
                field="resps",
            )
        prefix = prompt[: len(prompt) - len(asked)] if prompt.endswith(asked) else None
        yield item, prefix, sample.resps[0]


def _run(
    evaluation: Evaluation,
    arm: str,
    items: list[Item],
    prefixes: list[str | None],
    repeats: int,
) -> Run:
    results = evaluation.results
    protocol, shared = _protocol(evaluation, prefixes)
    arguments = _arguments(results.config)
    name = results.model_name or results.config.model
    return Run(
        schema=SCHEMA,
        suite=f"{KIND}-{evaluation.task}",
        report_only=False,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        plan=Plan(
            arms=(parse_arm(arm),),
            repeats=repeats,
            block_size=len(items),
            items=tuple(item.item_id for item in items),
        ),
        protocol=protocol,
        fingerprint=protocol.fingerprint(),
        fewshot_prefix=shared,
        engine=EngineInfo(
            kind=KIND,
            name=results.config.model,
            version=results.lm_eval_version,
            concurrency=None,
            options={},
        ),
        model=redact(name),
        model_hash=f"{UNKNOWN}: {redact(name)}",
        dtype=str(arguments.get("dtype", UNKNOWN)),
        hardware={"device": UNKNOWN, "name": UNKNOWN, "count": None},
        software={"transformers": results.transformers_version},
        unavailable=UNAVAILABLE,
        policy={},
    )


def _protocol(evaluation: Evaluation, prefixes: list[str | None]) -> tuple[Protocol, str | None]:
    results, task = evaluation.results, evaluation.task
    settings = {**results.configs[task].generation_kwargs, **_pairs(results.config.gen_kwargs)}
    until = settings.get("until", [])
    budget = next((settings[name] for name in _TOKEN_BUDGETS if settings.get(name)), None)
    samples = bool(settings.get("do_sample", False))
    shared = prefixes[0] if len(set(prefixes)) == 1 else None
    joined = "\0".join(prefix or "" for prefix in prefixes)
    version = results.versions.get(task)
    return Protocol(
        task=task,
        task_version="" if version is None else str(version),
        num_fewshot=results.shots.get(task) or 0,
        prefix_sha256=sha256_text(joined if shared is None else shared),
        chat_template_sha256=(
            None if results.chat_template is None else sha256_text(results.chat_template)
        ),
        stops=tuple([until] if isinstance(until, str) else until),
        max_tokens=int(budget or DEFAULT_MAX_TOKENS),
        sampling=Sampling(
            temperature=float(settings.get("temperature", 0.0)) if samples else 0.0,
            top_p=float(settings.get("top_p", 1.0)) if samples else 1.0,
            seed=0,
        ),
        extractor=ASSESSMENT_VERSION,
        harness=f"{KIND} {results.lm_eval_version or UNKNOWN}",
    ), shared


def _records(
    arm: str, items: list[Item], texts: list[list[str]], evaluation: Evaluation
) -> Iterator[Record]:
    for item, answers in zip(items, texts, strict=True):
        for repeat, text in enumerate(answers):
            assessed = assess(
                text, gold=item.gold, token_ids=None, finish_reason=None,
                question=item.question, error=None,
            )  # fmt: skip
            yield Record(
                item_id=item.item_id,
                arm=arm,
                repeat=repeat,
                text=text,
                token_ids=None,
                margins=None,
                finish_reason=None,
                answer=assessed.answer,
                strict=strict_match(text),
                flexible=flexible_extract(text),
                outcome=assessed.outcome,
                rule=assessed.rule,
                confidence=assessed.confidence,
                prompt_tokens=None,
                output_tokens=None,
                started=0.0,
                ended=0.0,
                ttft_s=None,
                block=0,
                drafted=None,
                accepted=None,
                error=None,
            )


def _write(folder: Path, run: Run, items: list[Item], arm: str, records: list[Record]) -> None:
    joined = (folder / "run.json").exists()
    if folder.exists() and not joined and any(folder.iterdir()):
        raise UsageError("is no run, and not empty", file=folder)
    if joined:
        run = _join(folder, run, items, arm)
    with RunLock(folder):
        write_lines(folder / arm / "records.jsonl", records)
        write_struct(folder / arm / "evidence.json", _no_evidence(run))
        write_lines(folder / "items.jsonl", items)
        write_struct(folder / "run.json", run)
        (folder / "verdict.json").unlink(missing_ok=True)


def _join(folder: Path, run: Run, items: list[Item], arm: str) -> Run:
    before = read_run(folder)
    if before.engine.kind != KIND:
        raise UsageError("is a run of an engine, not an import", file=folder)
    if arm in {known.name for known in before.plan.arms}:
        raise UsageError(f"has an arm {arm} already", file=folder)
    if read_items(folder) != items:
        raise UsageError("was imported from other items", file=folder, field="items")
    arms = (*before.plan.arms, *run.plan.arms)
    grown = msgspec.structs.replace(run, plan=msgspec.structs.replace(run.plan, arms=arms))
    same = msgspec.structs.replace(before, plan=grown.plan)
    differences = same.differences(grown)
    if differences or before.plan.repeats != run.plan.repeats:
        listed = "\n  ".join(differences or ("plan.repeats",))
        raise UsageError(f"was imported from something else:\n  {listed}", file=folder)
    return grown


def _no_evidence(run: Run) -> Evidence:
    values: dict[str, Any] = dict.fromkeys(Evidence.__struct_fields__)
    return Evidence(**{**values, "engine_version": run.engine.version, "asked": {}})


def _arguments(config: Invocation) -> dict[str, Any]:
    return _pairs(config.model_args)


def _pairs(given: str | dict[str, Any] | None) -> dict[str, Any]:
    if isinstance(given, str):
        parts = (part.partition("=") for part in given.split(",") if part)
        return {name.strip(): cast(Any, value.strip()) for name, _, value in parts}
    return given or {}
