"""A task through lm-eval's own objects: prompts, stops, gold, and lm-eval's readings of a text."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from evalsuite.errors import UsageError
from evalsuite.harness.library import (
    Generation,
    library_version,
    make_ready,
    quiet,
    read_generation,
)
from evalsuite.paths import TASKS
from evalsuite.protocol import GREEDY, Protocol, sha256_text
from evalsuite.records import Item

INVALID = "[invalid]"
STRICT, FLEXIBLE = "strict-match", "flexible-extract"
METRIC = "exact_match"


class TaskItem(NamedTuple):
    """One item with the whole prompt that asks for it."""

    item: Item
    prompt: str


class Readings(NamedTuple):
    """lm-eval's two readings of a text, None where its filter found nothing, and its scores."""

    strict: str | None
    flexible: str | None
    strict_score: float | None
    flexible_score: float | None


def item_id(question: str, gold: str | None) -> str:
    """Return 16 hex digits over question and gold, whatever row the item stands in."""
    return sha256_text(json.dumps([question, gold], ensure_ascii=False))[:16]


def select(items: Sequence[TaskItem], limit: int | None) -> tuple[TaskItem, ...]:
    """Return `limit` items drawn by a hash of their ids, in their own order.

    A smaller draw is a subset of a larger one, so that runs of different limits can be paired.
    Raises UsageError where there are fewer items than asked for.
    """
    if limit is None:
        return tuple(items)
    if limit > len(items):
        raise UsageError(f"{limit} items asked for, the task has {len(items)}", field="limit")
    drawn = sorted(items, key=lambda entry: _draw(entry.item.item_id))[:limit]
    chosen = {entry.item.item_id for entry in drawn}
    return tuple(entry for entry in items if entry.item.item_id in chosen)


class HarnessTask:
    """A generation task of lm-eval, loaded, with the prompts of all its items built."""

    def __init__(self, name: str, task: Any, max_tokens: int | None) -> None:
        self.name = name
        self._task = task
        generation = read_generation(task.config.generation_kwargs or {}, name)
        self.generation = Generation(generation.stops, max_tokens or generation.max_tokens)
        self.num_fewshot = int(task.config.num_fewshot or 0)
        self._docs: dict[str, dict[str, Any]] = {}
        self._targets: dict[str, str] = {}
        self.items, self._prefixes = self._build()

    @property
    def fewshot_prefix(self) -> str | None:
        """What stands before every question; None where items have prefixes of their own."""
        first = self._prefixes[0]
        return first if all(prefix == first for prefix in self._prefixes) else None

    def protocol(self, extractor: str, chat_template: str | None = None) -> Protocol:
        """Return the protocol under which answers of this task are scored."""
        shared = self.fewshot_prefix
        prefix = "\0".join(self._prefixes) if shared is None else shared
        metadata = self._task.config.metadata or {}
        return Protocol(
            task=self.name,
            task_version=str(metadata.get("version", "")),
            num_fewshot=self.num_fewshot,
            prefix_sha256=sha256_text(prefix),
            chat_template_sha256=None if chat_template is None else sha256_text(chat_template),
            stops=self.generation.stops,
            max_tokens=self.generation.max_tokens,
            sampling=GREEDY,
            extractor=extractor,
            harness=f"lm-eval {library_version()}",
        )

    def read(self, item: str, text: str) -> Readings:
        """Return lm-eval's strict and flexible readings of one answer, by the task's filters."""
        from lm_eval.api.instance import Instance

        doc = self._docs[item]
        instance = Instance("generate_until", doc, ("",), 0, resps=[text])
        values: dict[str, str | None] = {STRICT: None, FLEXIBLE: None}
        scores: dict[str, float | None] = {STRICT: None, FLEXIBLE: None}
        for ensemble in self._task._filters:
            if ensemble.name in values:
                ensemble.apply([instance])
                found = instance.filtered_resps[ensemble.name]
                values[ensemble.name] = self._compared(found)
                scores[ensemble.name] = self._score(item, found)
        return Readings(values[STRICT], values[FLEXIBLE], scores[STRICT], scores[FLEXIBLE])

    def _score(self, item: str, found: str) -> float:
        # What the task's process_results comes to, without rendering the target again each time.
        result = self._task._metric_fn_list[METRIC](
            references=[self._targets[item]],
            predictions=[found],
            **self._task._metric_fn_kwargs[METRIC],
        )
        return float(result[METRIC])

    def _compared(self, value: str) -> str | None:
        """What the metric compares: `value` after the task's `regexes_to_ignore` and its case."""
        if value == INVALID:
            return None
        metric = self._task.config.metric_list[0]
        for pattern in metric.get("regexes_to_ignore", ()):
            value = re.sub(pattern, "", value)
        return value.lower() if metric.get("ignore_case") else value

    def _build(self) -> tuple[tuple[TaskItem, ...], tuple[str, ...]]:
        # lm-eval draws a progress bar here; building takes a second at most.
        with contextlib.redirect_stderr(io.StringIO()):
            self._task.build_all_requests()
        items: list[TaskItem] = []
        prefixes: list[str] = []
        for instance in self._task.instances:
            doc = dict(instance.doc)
            prompt = str(instance.args[0])
            bare = str(self._task.fewshot_context(instance.doc, 0))
            if not prompt.endswith(bare):
                raise UsageError(f"task {self.name} puts shots after the question", field="task")
            target = self._task.doc_to_target(doc)
            item = self._item(doc, target)
            if item.item_id in self._docs:
                raise UsageError(
                    f"task {self.name} has one question twice: {item.question[:60]!r}", field="task"
                )
            self._docs[item.item_id] = doc
            self._targets[item.item_id] = str(target)
            items.append(TaskItem(item, prompt))
            prefixes.append(prompt[: len(prompt) - len(bare)])
        return tuple(items), tuple(prefixes)

    def _item(self, doc: dict[str, Any], target: object) -> Item:
        question = str(doc["question"] if "question" in doc else self._task.doc_to_text(doc))
        gold = _gold(target)
        return Item(item_id=item_id(question, gold), question=question, gold=gold)


def load_task(name: str, *, shots: int | None = None, max_tokens: int | None = None) -> HarnessTask:
    """Load a task by name, this project's own first, then lm-eval's.

    `shots` and `max_tokens` override the task's. Raises UsageError for an unknown task, one that is
    not about generating text, or data that cannot be read.
    """
    make_ready()
    quiet()
    task = _find(name)
    if task.get_config("output_type") != "generate_until":
        kind = task.get_config("output_type")
        raise UsageError(f"task {name} is of type {kind}; only generation can be run", field="task")
    if METRIC not in task._metric_fn_list:
        raise UsageError(f"task {name} is not scored by {METRIC}", field="task")
    if shots is not None:
        task.set_config(key="num_fewshot", value=shots)
    from lm_eval.defaults import DEFAULT_OTHER_SEED

    task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return HarnessTask(name, task, max_tokens)


def own_tasks() -> frozenset[str]:
    """Return the names of the tasks in this project's `tasks/`."""
    from lm_eval.tasks import TaskManager

    return frozenset(TaskManager(include_path=str(TASKS), include_defaults=False).all_tasks)


def _find(name: str) -> Any:
    from lm_eval.tasks import TaskManager

    # lm-eval's own index takes many seconds to build; most runs do without it.
    own = name in own_tasks()
    manager = TaskManager(include_path=str(TASKS), include_defaults=not own)
    if name not in manager.all_subtasks:
        raise UsageError(f"no task {name!r}", field="task")
    try:
        return manager.load(name)["tasks"][name]
    except (OSError, ConnectionError) as problem:
        raise UsageError(f"the data of task {name} cannot be loaded: {problem}") from None


def _gold(target: object) -> str | None:
    if not isinstance(target, str):
        return None
    return target.rpartition("####")[2].strip().replace(",", "")


def _draw(identifier: str) -> bytes:
    return hashlib.sha256(b"draw:" + identifier.encode()).digest()
