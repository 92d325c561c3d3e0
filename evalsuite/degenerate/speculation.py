"""What a broken draft and verify step does to text: tokens doubled, dropped, or out of order."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from operator import eq

from evalsuite.degenerate.lexicon import (
    FUNCTION,
    IMPOSSIBLE,
    LEGITIMATE_DOUBLES,
    OPENERS,
)
from evalsuite.degenerate.view import Confidence, Finding, Reading

_OPERATORS = frozenset("=+*/×÷<>%")
_SPACED = frozenset("=+*/×÷%")
_MARK_LAST = re.compile(r"[\w.]\s?####\s*$|####[ ]*[.=+*/]")
_POINT_FIRST = re.compile(r"(?:^|\s)[.,;:][a-z]{2,}")
_LINE_OPEN = re.compile(r"[\w)] ?= *\n(?=[A-Z][a-z]* [a-z]|####)")
_TWO_NUMBERS = re.compile(
    r"(?<![\d/.^-])(\d+(?:[.,]\d+)*) (\$?)(\d+(?:[.,]\d+)*)(?![\d/-])(?! ?[a-z])"
)
_MARK_TWICE = re.compile(r"(####[^\S\n]*\S{1,20})\s+\1")
_QUOTED_TWICE = re.compile(r'("\w[^"\n]{0,30}"\s*:\s*)\1|"(\w[^"\n]{0,30})"\2"')
_CLAUSE = frozenset(".,;:|()[]+-*/<>\"'")
_TERMS = frozenset("+-*/,$%")
MAX_GROUP = 9
# Tokens looked at one by one; a longer answer has shown its seams by then.
MAX_SEAMS = 2000


def doubled(reading: Reading) -> Iterator[Finding]:
    """Find tokens, or groups of them, that were emitted twice."""
    tokens = reading.lower
    events = _doubles(reading)
    if reading.repeats >= 1:
        events += _groups(reading)
    if "####" in reading.text and (mark := _MARK_TWICE.search(reading.text)):
        events.append((reading.text.count(" ", 0, mark.start()), 1.0))
    if '"' in reading.text:
        events += [(0, 1.0) for _ in _QUOTED_TWICE.findall(reading.text)]
    if not events:
        return
    weight = sum(score for _, score in events)
    first = min(index for index, _ in events)
    dense = weight >= 0.02 * len(tokens)
    if weight >= 2.5 and len(events) >= 3 and dense:
        yield reading.at_token("doubled_tokens", "high", first)
    elif weight >= 0.9:
        yield reading.at_token("doubled_tokens", "low", first)


def _doubles(reading: Reading) -> list[tuple[int, float]]:
    tokens = reading.lower
    if not any(map(eq, tokens, tokens[1:])):
        return []
    flags = bytes(map(eq, tokens, tokens[1:]))
    events, at = [], flags.find(1)
    while at >= 0:
        end = at
        while end < len(flags) and flags[end]:
            end += 1
        if end - at <= 3 and (score := _double(reading, at)):
            events.append((at, score))
        at = flags.find(1, end)
    return events


def _double(reading: Reading, index: int) -> float:
    first, second = reading.tokens[index : index + 2]
    word = first.lower()
    if word[0].isalpha():
        if len(word) < 2 and word != "a":
            return 0.0
        name = first[0].isupper() and second[0].isupper() and word not in FUNCTION
        explained = (
            word not in reading.asked.words or f"{word} {word}" in reading.asked.text.lower()
        )
        if word in LEGITIMATE_DOUBLES or (name and explained):
            return 0.0
        joined = re.search(rf"\b{re.escape(word)}\s+{re.escape(word)}\b", reading.text.lower())
        return 1.0 if joined else 0.0
    if word[0].isdigit():
        found = re.search(
            rf"(?<![\d.,]){re.escape(first)} {re.escape(first)}(?![\w/-])", reading.text
        )
        return 0.7 if found and "|" not in reading.text and first != "000" else 0.0
    if word in _SPACED:
        return (
            1.0
            if re.search(rf"\w\s*{re.escape(word)} {re.escape(word)}(?:\s|$)", reading.text)
            else 0.0
        )
    return 0.0


def _groups(reading: Reading) -> list[tuple[int, float]]:
    """Find groups of tokens that follow themselves at once, or with one token between."""
    tokens = reading.lower
    events: list[tuple[int, float]] = []
    size = len(tokens)
    for distance in range(2, min(MAX_GROUP, size // 2) + 1):
        need = max(2, distance - 1)
        flags = bytes(map(eq, tokens, tokens[distance:]))
        at = flags.find(b"\1" * need)
        while at >= 0:
            end = at + need
            while end < len(flags) and flags[end]:
                end += 1
            if end - at < 2 * distance and _reissued(reading, at, end, distance):
                events.append((at, 1.0))
            at = flags.find(b"\1" * need, end)
    return events


def _reissued(reading: Reading, start: int, end: int, distance: int) -> bool:
    """Whether tokens `start:end` and the same ones `distance` on are one group emitted twice.

    Parallel clauses and repeated terms also come back at a distance: there the copy begins after a
    mark, or the group is a sign with its number.
    """
    tokens = reading.lower
    run = tokens[start:end]
    words = [token for token in run if token[0].isalpha() and len(token) > 1]
    if len(set(run)) == 1 or set(run) & (LEGITIMATE_DOUBLES | {"|", "("}):
        return False
    copy = start + distance
    if tokens[copy - 1] in _CLAUSE or _new_line(reading, start, copy):
        return False
    if distance == 2:
        return len(words) == 2 and any(word in FUNCTION for word in words)
    if not words:
        after = reading.kinds[end + distance : end + distance + 1]
        return (
            len(run) >= 3
            and distance == len(run) + 1
            and after in ("n", "$")
            and run[-1][0].isdigit()
        )
    for here, there in ((start - 1, copy - 1), (end, end + distance)):
        pair = reading.kinds[here : here + 1] + reading.kinds[there : there + 1]
        if len(run) < distance and (pair == "nn" or (pair == "ww" and len(run) < 6)):
            return False
    signed = not _TERMS.isdisjoint(run)
    return len(run) >= 3 and not (signed and len(run) >= distance)


def _new_line(reading: Reading, first: int, second: int) -> bool:
    return "\n" in reading.text[reading.offset(first) : reading.offset(second)]


def seams(reading: Reading) -> Iterator[Finding]:
    """Find places where no sentence or equation goes on like this: tokens are lost or moved."""
    events = list(_seams(reading))
    if not events:
        return
    weight = sum(score for _, score in events)
    words = max(1, len(reading.tokens))
    if weight >= 4 and len(events) >= 4 and weight / words >= 0.06:
        yield reading.at_token("broken_grammar", "high", min(index for index, _ in events))
    elif weight >= 1.5 and weight / words >= 0.012:
        yield reading.at_token("broken_grammar", "low", min(index for index, _ in events))


def _seams(reading: Reading) -> Iterator[tuple[int, float]]:
    tokens, lower = reading.tokens, reading.lower
    if not IMPOSSIBLE.isdisjoint(itertools.pairwise(lower)):
        yield from _impossible(reading)
    if ("nn" in reading.kinds or "n$n" in reading.kinds) and "|" not in reading.text:
        found = _TWO_NUMBERS.findall(reading.text)
        numbers = sum(not (len(b) == 3 and b.isdigit() and len(a) <= 3) for a, _, b in found)
        yield from [(reading.kinds.find("n"), 0.8)] * numbers
    if not OPENERS.isdisjoint(tokens):
        for index, token in enumerate(tokens):
            if (
                token in OPENERS
                and index
                and tokens[index - 1].islower()
                and _same_line(reading, index)
            ):
                yield index, 1.0
    if "####" in reading.text and _MARK_LAST.search(reading.text):
        yield max(0, len(tokens) - 5), 1.0
    if "=" in reading.text:
        for _ in _LINE_OPEN.findall(reading.text):
            yield 0, 0.8
    if " ." in reading.text or " ," in reading.text:
        yield from [(0, 0.8)] * len(_POINT_FIRST.findall(reading.text))
    if tokens and tokens[0] in "=*+/)" and reading.text.lstrip()[:2] not in ("**", "* ", "=="):
        yield 0, 1.0


def _impossible(reading: Reading) -> Iterator[tuple[int, float]]:
    lower = reading.lower[:MAX_SEAMS]

    @cache
    def spaced(first: str, second: str) -> bool:
        """Two signs stand apart after a value, unlike in `==` or a row of stars."""
        joined = r"[\w)]\s?" + re.escape(first) + r"[^\S\n]+" + re.escape(second)
        return re.search(joined, reading.text) is not None

    for index, pair in enumerate(itertools.pairwise(lower)):
        if pair not in IMPOSSIBLE:
            continue
        first, second = pair
        if first in _OPERATORS or second in _OPERATORS:
            if first in "=*+/" and second in "=*+/" and not spaced(first, second):
                continue
            if first == "/" and second.isalpha():
                continue
        strong = first in "=*+/×÷" or (first in ("the", "an", "their") and not second.isalpha())
        yield index, 1.6 if strong else 1.0


def _same_line(reading: Reading, index: int) -> bool:
    before, opener = reading.tokens[index - 1], reading.tokens[index]
    # An opener before another capital is a title inside the sentence.
    return re.search(rf"\b{re.escape(before)} {opener}\b(?! [A-Z])", reading.text) is not None


def cumulative(reading: Reading) -> Iterator[Finding]:
    """Find a stream whose chunks each repeat all that came before, or the whole text twice."""
    text = reading.text
    size = len(text)
    if size < 12:
        return
    head = text[: min(24, size // 2)]
    again = text.find(head, 1)
    if again >= 0 and size >= 40 and text[:again].rstrip() == text[again:].rstrip():
        level: Confidence = "low" if text[again - 1].isspace() else "high"
        yield reading.found("repeated_whole", level, again)
        return
    words = text.split()
    starts = [index for index, word in enumerate(words[:400]) if word == words[0]] if words else []
    if len(starts) >= 3 and len(words) <= 400 and _grows(words, starts):
        yield reading.found("cumulative_stream", "high", text.find(words[0], 1))


def _grows(words: list[str], starts: list[int]) -> bool:
    pieces = [words[a:b] for a, b in zip(starts, [*starts[1:], len(words)], strict=True)]
    pairs = list(itertools.pairwise(pieces))
    grown = all(after[: len(before)] == before for before, after in pairs)
    return grown and len(pieces[-1]) > len(pieces[0]) and len(pieces[-1]) >= 4
