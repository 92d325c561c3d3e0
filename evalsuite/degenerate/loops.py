"""Loops: an exact cycle at the end, one inside, a frame that drifts, a tail of few words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import eq

from evalsuite.degenerate.view import Confidence, Finding, Reading

_ANCHORS = (8, 24, 72, 240)
_CANDIDATES = 24
MAX_PERIOD = 40
_RULERS = frozenset("-=_*|.~#+:· ")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Cycle:
    """`text[start:end]` repeats with `period` characters."""

    start: int
    end: int
    period: int

    @property
    def length(self) -> int:
        """Characters covered."""
        return self.end - self.start

    @property
    def count(self) -> float:
        """Cycles, with the last one cut."""
        return self.length / self.period


def tail_cycle(text: str) -> Cycle | None:
    """Return the longest cycle that runs up to the end of `text`, if it repeats at least twice."""
    best: Cycle | None = None
    size = len(text)
    for anchor in _ANCHORS:
        if size < anchor + 1:
            break
        found = _anchored(text, anchor)
        if found and (best is None or found.length > best.length):
            best = found
        if found and found.count >= 3:
            break
    return best


def _anchored(text: str, anchor: int) -> Cycle | None:
    size, gram, end = len(text), text[-anchor:], len(text) - 1
    best: Cycle | None = None
    for _ in range(_CANDIDATES):
        at = text.rfind(gram, 0, end)
        if at < 0:
            break
        period = size - anchor - at
        same = _same(text, period)
        if same >= period and (best is None or same + period > best.length):
            best = Cycle(size - same - period, size, period)
            if best.count >= 3:
                break
        end = at + anchor - 1
    return best


def _same(text: str, period: int) -> int:
    """Return how long a suffix of `text` equals the text `period` characters before it."""
    size = len(text)
    low, high = 0, size - period
    while low < high:
        middle = (low + high + 1) // 2
        if text[size - middle :] == text[size - middle - period : size - period]:
            low = middle
        else:
            high = middle - 1
    return low


def loops(reading: Reading) -> Iterator[Finding]:
    """Find loops; where the text stopped by itself, only what no question asks for."""
    text = reading.text
    if len(text) > 15:
        cycle = tail_cycle(text)
        if cycle and (level := _graded(reading, cycle)):
            yield reading.found("loop", level, cycle.start)
            return
    if reading.finish != "stop" and len(text) > 60:
        yield from _drifting(reading)
        yield from _few_words(reading)
    yield from _inside(reading)
    yield from _glued(reading)


def _graded(reading: Reading, cycle: Cycle) -> Confidence | None:
    """Grade a cycle at the end: how many rounds, of what, and whether the text stopped."""
    unit = reading.text[cycle.end - cycle.period : cycle.end]
    ended = reading.finish == "stop"
    if ended and reading.asked.wants_repetition and cycle.count < 60:
        return None
    high, low = _limits(unit, reading)
    if ended:
        whole = cycle.start <= 2 and cycle.count >= 8
        high, low = (high, low) if whole else (3 * high, 2 * low)
    elif reading.finish is None and cycle.start > 2:
        high = 1.5 * high
    if reading.finish == "length" and cycle.start <= 1 and cycle.length >= 60:
        low = min(low, 2.2)
    return "high" if cycle.count >= high else "low" if cycle.count >= low else None


def _limits(unit: str, reading: Reading) -> tuple[float, float]:
    """Return the cycles from which `unit` repeated is a loop: near-certain, suspicious."""
    size = len(unit)
    body = unit.strip()
    if not body:
        return max(3.0, 24 / size), max(2.5, 16 / size)
    if any(map(str.isalpha, body)):
        words = len(body.split())
        if size >= 40 and words >= 5:
            return 3.0, 2.6
        return max(5.0, 24 / size), max(4.0, 20 / size)
    if not any(map(str.isdigit, body)):
        rulers = set(body) <= _RULERS - {":"}
        return (120 / size, 80 / size) if rulers else (24 / size, 16 / size)
    if body.isdigit() and body == unit:
        return max(4.0, 40 / size), max(3.0, 30 / size)
    if "=" in body or "#" in body:
        return 7.0, 5.0
    return (24.0, 16.0) if size > 2 else (26.0, 18.0)


def _drifting(reading: Reading) -> Iterator[Finding]:
    """Find a frame whose numbers change from line to line, up to where the budget ended it."""
    text = _NUMBER.sub("0", reading.text)
    cycle = tail_cycle(text)
    if cycle is None:
        return
    unit = text[cycle.end - cycle.period : cycle.end]
    letters = sum(map(str.isalpha, unit))
    if letters < 3 or cycle.count < 6 or (cycle.count < 12 and cycle.length < 120):
        return
    index = len(re.findall(r"\d+(?:[.,]\d+)*", text[: cycle.start]))
    starts = [match.start() for match in _NUMBER.finditer(reading.text)]
    start = starts[index] if index < len(starts) else cycle.start
    sure = cycle.count >= 40 and not reading.asked.wants_repetition
    yield reading.found("drifting_loop", "high" if sure else "low", min(start, cycle.start))


def _few_words(reading: Reading) -> Iterator[Finding]:
    """Find an end made of very few words, in whatever order."""
    tokens = reading.lower
    for size in (160, 96, 48, 24):
        tail = tokens[-size:]
        if len(tail) < size:
            continue
        kinds = len(set(tail))
        arithmetic = not any(token[0].isalpha() or token[0] in "=#" for token in tail)
        if kinds <= 3 and not (arithmetic and size < 96):
            yield reading.at_token("few_words", "high", len(tokens) - size)
            return
        if size >= 96 and (share := _repeated(tail, 5) / (size - 4)) >= 0.62:
            level: Confidence = "high" if share >= 0.85 and not arithmetic else "low"
            yield reading.at_token("near_loop", level, len(tokens) - size)
            return


def _repeated(tokens: list[str], size: int) -> int:
    """Return how many runs of `size` tokens occurred before."""
    grams = zip(*(tokens[at:] for at in range(size)), strict=False)
    return len(tokens) - size + 1 - len(set(grams))


def _inside(reading: Reading) -> Iterator[Finding]:
    """Find a cycle of whole tokens that came to an end before the text did."""
    tokens = reading.lower
    if reading.repeats < 6 or _repeated(tokens, 6) < 2:
        return
    for period in range(1, min(MAX_PERIOD, len(tokens) // 3) + 1):
        flags = bytes(map(eq, tokens, tokens[period:]))
        if b"\1" * 7 not in flags:
            continue
        start, run = longest_run(flags)
        count = run / period + 1
        if count < 4:
            continue
        unit = tokens[start : start + period]
        letters = sum(map(str.isalpha, "".join(unit)))
        if level := _inner(unit, letters, count, reading):
            yield reading.at_token("inner_loop", level, start)
            return


def _inner(unit: list[str], letters: int, count: float, reading: Reading) -> Confidence | None:
    if reading.asked.wants_repetition and reading.finish == "stop":
        return None
    if letters < 2:
        sure = all(token in "!?$&@;\"'" for token in unit) and count >= 24
        return "high" if sure else "low" if (count >= 60 and unit[0] not in _RULERS) else None
    if count >= 16 or (len(unit) >= 6 and count >= 6):
        return "high"
    return "low" if count >= 8 or (len(unit) >= 6 and count >= 4) else None


def longest_run(flags: bytes) -> tuple[int, int]:
    """Return start and length of the longest run of ones in `flags` (bytes 0 and 1)."""
    best = max(flags.split(b"\0"), key=len, default=b"")
    return (flags.find(best), len(best)) if best else (0, 0)


def _glued(reading: Reading) -> Iterator[Finding]:
    """Find one unbroken word that repeats itself, such as a piece without its space."""
    if max(map(len, reading.tokens), default=0) < 24:
        return
    for index, token in enumerate(reading.tokens):
        if len(token) < 24 or not token.isalpha():
            continue
        cycle = tail_cycle(token)
        if cycle and cycle.length >= 24 and cycle.count >= 6:
            yield reading.at_token("glued_loop", "high", index)
            return
