"""The answer beside its eager twin: the same text with tokens doubled or lost."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

from evalsuite.degenerate.view import AnswerView, Finding, Reading

MAX_TOKENS = 600


def twin(reading: Reading) -> Iterator[Finding]:
    """Find doubled or lost tokens; silent without a twin, or where the texts went separate ways."""
    if reading.reference is None or reading.reference == reading.text:
        return
    theirs = Reading(AnswerView(reading.reference)).tokens
    mine = reading.tokens
    if max(len(mine), len(theirs)) > MAX_TOKENS or not mine:
        return
    changes = [
        change
        for change in SequenceMatcher(None, theirs, mine, autojunk=False).get_opcodes()
        if change[0] != "equal"
    ]
    kinds = {change[0] for change in changes}
    if kinds == {"insert"} and all(_repeats(mine, b0, b1) for _, _, _, b0, b1 in changes):
        level = "high" if len(changes) >= 3 else "low"
        yield reading.at_token("doubled_against_twin", level, changes[0][3])  # type: ignore[arg-type]
    elif kinds == {"delete"} and sum(a1 - a0 for _, a0, a1, _, _ in changes) * 3 < len(theirs):
        yield reading.at_token("dropped_against_twin", "low", changes[0][3])


def _repeats(tokens: list[str], start: int, end: int) -> bool:
    group = tokens[start:end]
    size = len(group)
    before, after = tokens[max(0, start - size - 2) : start], tokens[end : end + size + 2]
    return any(
        side[at : at + size] == group
        for side in (before, after)
        for at in range(len(side) - size + 1)
    )
