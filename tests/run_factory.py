"""Run folders made without an engine: healthy by construction, then broken as a test wishes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from evalsuite.arms import STANDARD_ARMS, Arm, parse_arm
from evalsuite.assess import ASSESSMENT_VERSION, assess
from evalsuite.harness.task import item_id
from evalsuite.protocol import GREEDY, Protocol, sha256_text
from evalsuite.records import SCHEMA, EngineInfo, Evidence, Item, Plan, Record, Run
from evalsuite.storage import write_lines, write_struct

ACCEPTED = (0.95, 0.9, 0.85, 0.8, 0.75)
NOUNS = ("apples", "books", "coins", "pens", "cards", "shells", "stamps")

Change = Callable[[dict], dict | None]


def make_items(count: int) -> list[Item]:
    """Return `count` small problems, all different."""
    items = []
    for number in range(count):
        a, b = 3 + number % 17, 11 + number
        noun = NOUNS[number % len(NOUNS)]
        question = f"Tom has {a} boxes of {b} {noun} each. How many {noun} does he have?"
        items.append(
            Item(item_id=item_id(question, str(a * b)), question=question, gold=str(a * b))
        )
    return items


def answer_text(item: Item, right: bool) -> str:
    """Return a worked answer, right or off by some."""
    words = item.question.split()
    a, b, noun = int(words[2]), int(words[5]), words[6]
    value = a * b if right else a * b + 7
    return f" He has {a}*{b}=<<{a}*{b}={value}>>{value} {noun}.\n#### {value}"


@dataclass
class Factory:
    """Makes runs over the same items. `rates` are the chances of a right answer by item."""

    items: list[Item]
    rates: np.ndarray
    arms: Sequence[Arm] = STANDARD_ARMS
    dtype: str = "float32"
    device: str = "cpu"
    suite: str = "made"
    repeats: int = 1
    block_size: int = 16
    report_only: bool = False
    unavailable: tuple[str, ...] = ()
    policy: dict = field(default_factory=dict)
    shared: bool = True

    @classmethod
    def of(cls, count: int, **options: object) -> Factory:
        """Return a factory whose answers are steady: right on nine items of ten in every run."""
        items = make_items(count)
        rates = np.array([int(sha256_text(one.item_id)[:6], 16) % 10 != 0 for one in items], float)
        return cls(items, rates, **options)  # type: ignore[arg-type]

    def noisy(self, flips: float) -> Factory:
        """Let a share 2 * `flips` of the items be answered by chance, differently in every arm."""
        loose = [
            int(sha256_text(one.item_id)[6:12], 16) % 1000 < 2000 * flips for one in self.items
        ]
        self.rates = np.where(loose, 0.5, self.rates)
        self.shared, self.dtype = False, "bfloat16"
        return self

    def protocol(self) -> Protocol:
        """Return the protocol of all runs made here."""
        return Protocol(
            task="made",
            task_version="1",
            num_fewshot=0,
            prefix_sha256=sha256_text(""),
            chat_template_sha256=None,
            stops=("Question:",),
            max_tokens=64,
            sampling=GREEDY,
            extractor=ASSESSMENT_VERSION,
            harness="0",
        )

    def make(self, folder: Path, seed: int = 0, slow: dict[str, float] | None = None) -> Path:
        """Write a healthy run; `slow` multiplies the wall time of arms."""
        rng = np.random.default_rng(seed)
        protocol = self.protocol()
        ids = tuple(item.item_id for item in self.items)
        run = Run(
            schema=SCHEMA,
            suite=self.suite,
            report_only=self.report_only,
            created=f"2026-09-01T00:00:{seed % 60:02}+00:00",
            plan=Plan(
                arms=tuple(self.arms),
                repeats=self.repeats,
                block_size=self.block_size,
                items=ids,
            ),
            protocol=protocol,
            fingerprint=protocol.fingerprint(),
            fewshot_prefix="",
            engine=EngineInfo(kind="made", name="made", version="1", concurrency=4, options={}),
            model=None,
            model_hash="0123456789abcdef",
            dtype=self.dtype,
            hardware={"device": self.device, "name": "test", "count": 1},
            software={"made": "1"},
            unavailable=self.unavailable,
            policy=self.policy,
        )
        write_struct(folder / "run.json", run)
        write_lines(folder / "items.jsonl", self.items)
        draws = rng.random((self.repeats, len(self.items)))
        for order, arm in enumerate(self.arms):
            own = draws if self.shared else rng.random(draws.shape)
            times = self._times(rng, order, arm, (slow or {}).get(arm.name, 1.0), seed)
            records = self._records(arm, own < self.rates, times)
            write_lines(folder / arm.name / "records.jsonl", records)
            write_struct(folder / arm.name / "evidence.json", evidence_of(arm, rng))
        return folder

    def _times(
        self, rng: np.random.Generator, order: int, arm: Arm, slow: float, seed: int
    ) -> list[tuple[int, float, float]]:
        speed = slow * (1.0 if not arm.graph else 0.6 - 0.05 * arm.mtp)
        found = []
        for index in range(self.repeats * len(self.items)):
            block = index // self.block_size
            begin = 1e6 * (seed + 1) + 1000.0 * block + 100.0 * order
            within = index % self.block_size
            began = begin + within * 0.001
            last = within == self.block_size - 1 or index % len(self.items) == len(self.items) - 1
            ended = begin + speed * ((1.0 + 0.05 * rng.random()) if last else 0.5 * rng.random())
            found.append((block, began, max(ended, began + 1e-4)))
        return found

    def _records(self, arm: Arm, right: np.ndarray, times: list) -> list[Record]:
        records = []
        for repeat, row in enumerate(right):
            for index, item in enumerate(self.items):
                block, started, ended = times[repeat * len(self.items) + index]
                record = record_of(item, arm.name, repeat, bool(row[index]), block, started, ended)
                drafted = 8 * arm.mtp
                accepted = max(drafted - 1 - index % 3, 0)
                records.append(msgspec.structs.replace(record, drafted=drafted, accepted=accepted))
        return records


def record_of(
    item: Item, arm: str, repeat: int, right: bool, block: int, started: float, ended: float
) -> Record:
    """Return a healthy record, scored as the runner scores it."""
    return scored(
        Record(
            item_id=item.item_id,
            arm=arm,
            repeat=repeat,
            text=answer_text(item, right),
            token_ids=[5, 6, 7 if right else 8, 9],
            margins=[3.0, 2.5, 2.0, 4.0],
            finish_reason="stop",
            answer=None,
            strict=None,
            flexible=None,
            outcome="correct",
            rule=None,
            confidence=None,
            prompt_tokens=40,
            output_tokens=4,
            started=started,
            ended=ended,
            ttft_s=0.01,
            block=block,
            drafted=None,
            accepted=None,
            error=None,
        ),
        item,
    )


def scored(record: Record, item: Item) -> Record:
    """Return the record with the outcome, answer and rule that its text earns."""
    found = assess(
        record.text,
        gold=item.gold,
        token_ids=record.token_ids,
        finish_reason=record.finish_reason,
        question=item.question,
        error=record.error,
    )
    return msgspec.structs.replace(record, **found._asdict())


def evidence_of(arm: Arm, rng: np.random.Generator) -> Evidence:
    """Return what an arm tells that ran as asked."""
    drafts = 4000 if arm.mtp else None
    counts = None
    if drafts:
        counts = []
        left = drafts
        for rate in ACCEPTED[: arm.mtp]:
            left = int(rng.binomial(left, rate))
            counts.append(left)
    kind = f"verify:{arm.mtp + 1}" if arm.mtp else "decode"
    return Evidence(
        engine_version="1",
        backend="made",
        graph_replays=500 if arm.graph else 0,
        eager_decode_steps=0 if arm.graph else 500,
        steps_by_kind={"prefill": 20, kind: 500},
        routes={"prefill": "dense", kind: "ragged"},
        drafts=drafts,
        drafted_tokens=drafts * arm.mtp if drafts else None,
        accepted_per_position=counts,
        draft_length=arm.mtp or None,
        prefix_hits=0,
        preemptions=0,
        asked={"graph": arm.graph, "mtp": arm.mtp},
        read_back={"graph": arm.graph, "mtp": arm.mtp},
    )


def change_records(folder: Path, arm: str, change: Change, *, rescore: bool = True) -> None:
    """Apply `change` to every record of an arm (None drops it); `rescore` keeps it consistent."""
    items = {row["item_id"]: msgspec.convert(row, Item) for row in rows(folder / "items.jsonl")}
    path = folder / arm / "records.jsonl"
    kept = []
    for row in rows(path):
        changed = change(dict(row))
        if changed is None:
            continue
        if rescore:
            record = msgspec.convert(changed, Record)
            changed = msgspec.to_builtins(scored(record, items[record.item_id]))
        kept.append(changed)
    write_rows(path, kept)


def change_json(path: Path, change: Change) -> None:
    """Rewrite a JSON file; its keys may be dropped too."""
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def rows(path: Path) -> list[dict]:
    """Return the lines of a JSONL file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def write_rows(path: Path, values: list[dict]) -> None:
    """Write lines of JSON as they are, valid or not."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def arms(*names: str) -> tuple[Arm, ...]:
    """Return arms by name."""
    return tuple(parse_arm(name) for name in names)
