"""Runs for the tests of the report: healthy, broken in one arm, hostile, large."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import NamedTuple

from run_factory import NOUNS, Factory, change_json, change_records

from evalsuite.baseline import accept_baseline
from evalsuite.harness.task import item_id
from evalsuite.judge import judge_run
from evalsuite.records import Item
from evalsuite.report import write_reports

HOSTILE = (
    "<script>window.pwned='script'</script>",
    "</script><script>window.pwned='closed'</script>",
    "</textarea></pre></style></title><img src=x onerror=\"window.pwned='img'\">",
    "--><!--<svg onload=\"window.pwned='svg'\"><animate onbegin=\"window.pwned='b'\"></svg>-->",
    '<a href="javascript:window.pwned=\'href\'">click</a><iframe srcdoc="<script>1</script>">',
    "{{ 7*7 }} {% raw %} ${window.pwned='template'}",
    "\u202eright to left\u202c \u2066isolated\u2069 \u200b\ufeff",
    "nul \x00 bell \x07 escape \x1b[31m delete \x7f next \x85",
    "replaced \ufffd\ufffd \ud83d\ude00 Z\u0351\u036b\u0343\u036a\u0302a\u0489".encode(
        "utf-16", "surrogatepass"
    ).decode("utf-16"),
    "``` @everyone ![x](https://evil.example/x.png) [y](javascript:1) | a | b |\n# heading",
    "]]> &amp; &#0; <![CDATA[ x",
)


class Judged(NamedTuple):
    """A run that was judged and reported, with its baseline file."""

    folder: Path
    baseline: Path

    @property
    def page(self) -> str:
        """The page."""
        return (self.folder / "report.html").read_text(encoding="utf-8")


def reported(folder: Path, baseline: Path) -> Judged:
    """Judge a run and write its reports."""
    judge_run(folder, baseline=str(baseline))
    write_reports(folder, baseline=str(baseline))
    return Judged(folder, baseline)


def with_baseline(factory: Factory, root: Path, why: str = "first") -> Path:
    """Accept two healthy runs and return the baseline's file."""
    for seed in (1, 2):
        run = factory.make(root / f"accepted{seed}", seed=seed)
        accept_baseline(run, why, who="reviewer", root=root / "baselines")
    return root / "baselines" / factory.suite / f"{factory.dtype}.json"


def loops(row: dict) -> dict:
    """Let a third of the answers loop."""
    if int(row["item_id"][:4], 16) % 3 == 0:
        row["text"] = " He has" + " the" * 90
        row["token_ids"], row["margins"] = [5] + [7] * 60, [2.0] * 61
        row["finish_reason"], row["output_tokens"] = "length", 61
    return row


def broken_run(root: Path, items: int = 60) -> Judged:
    """Return a run whose mtp2 loops, drafts badly and takes another kernel."""
    factory = Factory.of(items)
    baseline = with_baseline(factory, root)
    folder = factory.make(root / "broken", seed=3)
    change_records(folder, "mtp2", loops)

    def evidence(value: dict) -> dict:
        routes = {**value["routes"], "verify:3": "dense"}
        return {**value, "accepted_per_position": [200, 10], "routes": routes}

    change_json(folder / "mtp2" / "evidence.json", evidence)
    return reported(folder, baseline)


def healthy_run(root: Path, items: int = 60) -> Judged:
    """Return a run in which nothing is wrong."""
    factory = Factory.of(items)
    baseline = with_baseline(factory, root)
    return reported(factory.make(root / "healthy", seed=3), baseline)


def hostile_run(root: Path) -> Judged:
    """Return a run whose questions, answers, errors and baseline try to act."""
    factory = Factory.of(40)
    factory.items = [
        hostile_item(item, HOSTILE[at % len(HOSTILE)]) for at, item in enumerate(factory.items)
    ]
    baseline = with_baseline(factory, root, why=" ".join(HOSTILE[:6]))
    folder = factory.make(root / "hostile", seed=3)
    place = {item.item_id: number for number, item in enumerate(factory.items)}

    def attack(row: dict) -> dict:
        number = place[row["item_id"]]
        text = HOSTILE[(number * 3) % len(HOSTILE)]
        row["text"] = text * (90 if number % 4 == 0 else 1)
        if number == 5:
            row["text"] = "A" * 1_000_000 + text
        if number == 7:
            row.update(text=None, token_ids=None, margins=None, finish_reason="error", error=text)
        return row

    change_records(folder, "mtp1", attack)
    return reported(folder, baseline)


def hostile_item(item: Item, text: str) -> Item:
    """Return the item with `text` behind its question."""
    question = f"{item.question} {text}"
    return Item(item_id=item_id(question, item.gold), question=question, gold=item.gold)


def sentence(rng: random.Random) -> str:
    """Return a sentence such as answers hold."""
    who, what = rng.choice(("Tom", "Ali", "Rosa", "Mia", "Hugo", "Sara")), rng.choice(NOUNS)
    verb = rng.choice(("buys", "sells", "finds", "loses", "counts", "keeps", "gives away"))
    where = rng.choice(("at school", "in the shop", "on the market", "at home", "in the park"))
    return f"{who} {verb} {rng.randrange(2, 900)} {what} {where}, worth {rng.randrange(99)} euros."


def large_run(root: Path, items: int = 1319) -> Judged:
    """Return a run of 7 arms whose answers all differ, as a large model's in bf16 do."""
    factory = Factory.of(items).noisy(0.05)
    baseline = with_baseline(factory, root)
    folder = factory.make(root / "large", seed=3)
    for arm in factory.arms:

        def lengthen(row: dict, arm: str = arm.name) -> dict:
            seed = hashlib.sha256(row["item_id"].encode()).digest()
            same, own = random.Random(seed), random.Random(seed + arm.encode())
            said = [sentence(same) for _ in range(9)]
            said[own.randrange(3) :] = [sentence(own) for _ in range(8)]
            ids = [own.randrange(5000) for _ in range(120)]
            row["text"] = f" {' '.join(said)}{row['text']}"
            row["token_ids"], row["margins"] = ids, [own.random() * 9 for _ in ids]
            row["output_tokens"] = len(ids)
            return row

        change_records(folder, arm.name, lengthen)
    return reported(folder, baseline)
