"""A healthy run and one to break, of the miniature's geometry, judged against each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from run_factory import Change, Factory, arms, change_json, change_records

from evalsuite.baseline_choice import Chosen
from evalsuite.judge import verdict_on
from evalsuite.localise import Localisation
from evalsuite.policy import Policy
from evalsuite.reference import from_run
from evalsuite.runload import load_run
from evalsuite.verdict import Verdict

ARMS = ("eager", "graph", "eager-mtp3", "mtp3")


class Case:
    """Both runs; changes are made to the second."""

    def __init__(self, folder: Path, items: int = 32, dtype: str = "float32") -> None:
        factory = Factory.of(items, arms=arms(*ARMS), dtype=dtype)
        self.healthy = factory.make(folder / "healthy", 0)
        self.run = factory.make(folder / "run", 1)
        self.engine("mini", "glm53_mini")

    def engine(self, kind: str, model: str | None, **options: object) -> None:
        """Name another engine and model in both runs."""
        for folder in (self.healthy, self.run):
            change_json(
                folder / "run.json",
                lambda run: {
                    **run,
                    "model": model,
                    "engine": {**run["engine"], "kind": kind, "options": options},
                },
            )

    def both(self, change: Change) -> None:
        """Change the records of every arm of both runs: what follows is healthy too."""
        for folder in (self.healthy, self.run):
            for name in ARMS:
                change_records(folder, name, change)

    def records(self, change: Change, *names: str) -> Localisation:
        """Change records of these arms, and say where that sits."""
        for name in names:
            change_records(self.run, name, change)
        return self.placed()

    def evidence(self, change: Change, *names: str) -> Localisation:
        """Change the evidence of these arms, and say where that sits."""
        for name in names:
            change_json(self.run / name / "evidence.json", change)
        return self.placed()

    def judged(self) -> Verdict:
        """The verdict on the second run."""
        policy = Policy()
        run = load_run(self.run)
        reference = from_run(load_run(self.healthy), run.ids, policy.equality)
        return verdict_on(run, Chosen(reference=reference), policy)

    def placed(self) -> Localisation:
        """Where the second run goes wrong."""
        verdict = self.judged()
        assert verdict.verdict == "fail" and verdict.localisation is not None
        return verdict.localisation


def part(row: dict) -> dict:
    """Another third token and another value."""
    return {**row, "token_ids": [5, 6, 99, 9], "text": " It is 5*5=<<5*5=25>>25.\n#### 987654"}


def accepts(rates: Sequence[float]) -> Change:
    """An arm whose drafts held so often."""
    return lambda row: {**row, "accepted_per_position": [int(4000 * rate) for rate in rates]}


def long(row: dict) -> dict:
    """An answer of 24 tokens, none of whose drafts was turned down, behind a prompt of its own
    length."""
    length = 100 + int(row["item_id"][:4], 16) % 53
    return {
        **row,
        "token_ids": [*range(5, 29)],
        "margins": [3.0] * 24,
        "prompt_tokens": length,
        "output_tokens": 24,
        "accepted": row["drafted"],
    }


def drifts(*tokens: int) -> Change:
    """Margins moved at these tokens."""
    return lambda row: {
        **row,
        "margins": [m + 0.1 * (at in tokens) for at, m in enumerate(row["margins"])],
    }
