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
from evalsuite.harness.chat import Messages, chat_arguments, prefix_of, read_messages
from evalsuite.harness.library import (
    Generation,
    library_version,
    read_generation,
)
from evalsuite.protocol import GREEDY, Chat, Protocol, ThinkingModel, sha256_text
from evalsuite.records import Item

INVALID = "[invalid]"
STRICT, FLEXIBLE = "strict-match", "flexible-extract"
METRIC = "exact_match"


class TaskItem(NamedTuple):
    """One item with the whole prompt that asks for it: a text, or the JSON of `messages`."""

    item: Item
    prompt: str
    messages: Messages | None = None


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
    chosen = {entry.item.item_id for entry in drawn(items)[:limit]}
    return tuple(entry for entry in items if entry.item.item_id in chosen)


def drawn(items: Sequence[TaskItem]) -> list[TaskItem]:
    """Return all items in the order in which they are drawn."""
    return sorted(items, key=lambda entry: _draw(entry.item.item_id))


class HarnessTask:
    """A generation task of lm-eval, loaded, with the prompts of all its items built."""

    def __init__(
        self,
        name: str,
        task: Any,
        max_tokens: int | None,
        stops: tuple[str, ...] | None = None,
        chat: Chat | None = None,
    ) -> None:
        self.name = name
        self.chat = chat
        self._task = task
        generation = read_generation(task.config.generation_kwargs or {}, name)
        self.generation = Generation(
            generation.stops if stops is None else stops, max_tokens or generation.max_tokens
        )
        self.num_fewshot = int(task.config.num_fewshot or 0)
        self._docs: dict[str, dict[str, Any]] = {}
        self._targets: dict[str, str] = {}
        self.items, self._prefixes = self._build()

    @property
    def fewshot_prefix(self) -> str | None:
        """What stands before every question; None where items have prefixes of their own."""
        first = self._prefixes[0]
        return first if all(prefix == first for prefix in self._prefixes) else None

    def protocol(
        self,
        extractor: str,
        chat_template: str | None = None,
        thinking: ThinkingModel | None = None,
    ) -> Protocol:
        """Return the protocol under which answers of this task are scored.

        `chat_template` is what the chats go through; it counts where there are chats.
        """
        template = chat_template if self.chat is not None else None
        shared = self.fewshot_prefix
        prefix = "\0".join(self._prefixes) if shared is None else shared
        metadata = self._task.config.metadata or {}
        return Protocol(
            task=self.name,
            task_version=str(metadata.get("version", "")),
            num_fewshot=self.num_fewshot,
            prefix_sha256=sha256_text(prefix),
            chat_template_sha256=None if template is None else sha256_text(template),
            stops=self.generation.stops,
            max_tokens=self.generation.max_tokens,
            sampling=GREEDY,
            extractor=extractor,
            harness=f"lm-eval {library_version()}",
            chat=self.chat,
            thinking=thinking,
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
            self._task.build_all_requests(**chat_arguments(self.chat))
        items: list[TaskItem] = []
        prefixes: list[str] = []
        for instance in self._task.instances:
            doc = dict(instance.doc)
            prompt = str(instance.args[0])
            bare = str(self._task.fewshot_context(instance.doc, 0))
            messages = None if self.chat is None else read_messages(prompt)
            prefix = prefix_of(prompt, messages, bare)
            if prefix is None:
                raise UsageError(f"task {self.name} puts shots after the question", field="task")
            target = self._task.doc_to_target(doc)
            item = self._item(doc, target)
            if item.item_id in self._docs:
                raise UsageError(
                    f"task {self.name} has one question twice: {item.question[:60]!r}", field="task"
                )
            self._docs[item.item_id] = doc
            self._targets[item.item_id] = str(target)
            items.append(TaskItem(item, prompt, messages))
            prefixes.append(prefix)
        return tuple(items), tuple(prefixes)

    def _item(self, doc: dict[str, Any], target: object) -> Item:
        question = str(doc["question"] if "question" in doc else self._task.doc_to_text(doc))
        gold = _gold(target)
        return Item(item_id=item_id(question, gold), question=question, gold=gold)


def _gold(target: object) -> str | None:
    if not isinstance(target, str):
        return None
    return target.rpartition("####")[2].strip().replace(",", "")


def _draw(identifier: str) -> bytes:
    return hashlib.sha256(b"draw:" + identifier.encode()).digest()
