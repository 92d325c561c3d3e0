"""Answers that are hardly there: nothing, one token, an open end, a budget rambled away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalsuite.degenerate.lexicon import FUNCTION, words
from evalsuite.degenerate.view import Finding, Reading

# Words after which a sentence cannot end.
_OPEN = words(
    """the a an of to and or are was were have his their its with from at because if let
    + - * / = × ÷"""
)
_REPLIES = words(
    "yes no none both all half zero one two three four five six seven eight nine ten eleven twelve"
)
_STARTS = (FUNCTION | {"okay", "sure", "well", "we"}) - _REPLIES
_DOUBT = re.compile(
    r"\b(?:wait|hmm+|maybe|perhaps|or is it|let me|hold on|but (?:the|what|if))\b", re.I
)
_NEXT = re.compile(r"\n\s*(?:\*\*)?(?:Question|Q|Problem)\s*\d*\s*:")
_MARK_LINE = re.compile(r"####[ ]*([^\n#]*)")


def emptiness(reading: Reading) -> Iterator[Finding]:
    """Find empty answers and answers that end before they begin."""
    text = reading.text
    if not text.strip():
        cut = reading.finish == "length" and not reading.token_ids
        yield reading.found("empty", "low" if cut else "high", 0)
        return
    if reading.finish != "stop":
        return
    lower = reading.lower
    if not lower:
        return
    if len(lower) == 1 and lower[0] in _STARTS:
        yield reading.found("stub", "high", 0)
    elif lower[-1] in _OPEN and not text.rstrip().endswith((".", "!", "?", ":", '"', "`")):
        sure = len(lower) <= 3 and not any(token[0].isdigit() for token in lower)
        yield reading.at_token("open_end", "high" if sure else "low", len(lower) - 1)
    elif len(lower) <= 4 and lower[-1][0].isalpha() and lower[0] in _STARTS and not _replies(lower):
        yield reading.found("stub", "low", 0)


def _replies(lower: list[str]) -> bool:
    return any(token[0].isdigit() or token in _REPLIES for token in lower)


def rambling(reading: Reading) -> Iterator[Finding]:
    """Find doubts that use up the budget, questions nobody asked, a marker again and again."""
    text = reading.text
    if reading.finish == "length" and len(text) > 200:
        doubts = _DOUBT.findall(text)
        if len(doubts) >= 5 and len(doubts) * 220 >= len(text):
            yield reading.found("rambling", "low", 0)
    if "####" not in text:
        return
    marks = [mark.strip() for mark in _MARK_LINE.findall(text)]
    same = max(map(marks.count, set(marks[:50])), default=0) if len(marks) > 2 else 0
    if same >= 4:
        yield reading.found("repeated_marker", "high", text.find("####"))
    elif same == 3:
        yield reading.found("repeated_marker", "low", text.find("####"))
    if (asked := _NEXT.search(text, text.find("####"))) and reading.finish != "stop":
        yield reading.found("next_question", "low", asked.start())
