"""The frozen splits: `python -m gsm_mini.splits --write` makes them, `--check` compares them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gsm_mini.generate import DEFAULT_MIX, Mix, iter_problems
from gsm_mini.problem import Problem
from gsm_mini.rows import DATA, SPLIT_SIZES
from gsm_mini.verify import Mismatch, verify

SEEDS = {"fewshot": 1101, "validation": 1102, "test": 1103}
# Shots stand in front of every question: each of another family, none long, none trivial.
SHOT_WORDS, SHOT_CHARACTERS, SHOT_STEPS = 45, 150, (3, 4)


def _shots(mix: Mix) -> Iterator[Problem]:
    families: set[str] = set()
    for problem in iter_problems(SEEDS["fewshot"], mix):
        fits = (
            len(problem.question.split()) <= SHOT_WORDS
            and len(problem.answer) <= SHOT_CHARACTERS
            and problem.steps in SHOT_STEPS
        )
        if fits and problem.family not in families:
            families.add(problem.family)
            yield problem


def _verified(problem: Problem) -> Problem:
    if verify(problem.question, problem.answer) != problem.gold:
        raise Mismatch(f"the text's answer is not {problem.gold}: {problem.question!r}")
    return problem


def make_splits(mix: Mix = DEFAULT_MIX) -> dict[str, list[Problem]]:
    """All splits, every problem verified and no question twice in any of them."""
    seen: set[str] = set()
    splits: dict[str, list[Problem]] = {}
    for name, seed in SEEDS.items():
        stream = _shots(mix) if name == "fewshot" else iter_problems(seed, mix)
        problems: list[Problem] = []
        while len(problems) < SPLIT_SIZES[name]:
            problem = next(stream)
            if problem.question not in seen:
                seen.add(problem.question)
                problems.append(_verified(problem))
        splits[name] = problems
    return splits


def to_jsonl(problems: list[Problem]) -> str:
    """The text of a split's file: question, answer, family and steps, a row a line."""
    rows = ({**p.row(), "family": p.family, "steps": p.steps} for p in problems)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def write_splits(data: Path = DATA) -> None:
    """Write every split, each file whole or not at all."""
    texts = {name: to_jsonl(problems) for name, problems in make_splits().items()}
    data.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        partial = data / f"{name}.jsonl.partial"
        partial.write_text(text, encoding="utf-8", newline="\n")
        os.replace(partial, data / f"{name}.jsonl")


def differences(data: Path = DATA) -> list[str]:
    """Where the files differ from what the generator makes: one line per file, none when equal."""
    found = []
    for name, problems in make_splits().items():
        path = data / f"{name}.jsonl"
        if not path.is_file():
            found.append(f"{path}: is missing")
            continue
        made = to_jsonl(problems).encode().split(b"\n")
        kept = path.read_bytes().split(b"\n")
        if made != kept:
            pairs = enumerate(zip(made, kept, strict=False), start=1)
            short = min(len(made), len(kept)) + 1
            line = next((number for number, (a, b) in pairs if a != b), short)
            found.append(f"{path}:{line}: is not what the generator makes")
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command line; exit code 0, or 1 when a file differs."""
    parser = argparse.ArgumentParser(prog="python -m gsm_mini.splits", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="make the files anew")
    action.add_argument("--check", action="store_true", help="compare them with the generator")
    if parser.parse_args(arguments).write:
        write_splits()
        return 0
    found = differences()
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
