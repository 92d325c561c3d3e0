"""Which number an unmarked text ends on: the sentence that concludes, and the value in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from evalsuite.numerals import Numeral

_Source = Callable[[str, int, int], Iterable[Numeral]]

_END = re.compile(r"(?<!\d)[.!?](?=\s|$)|(?<=\d)[.!?](?=\s+[^\d\s.]|\s*$)|\n|[。！？]")
_ASIDE = re.compile(
    r"\s*\W*(?:each|every|one|note|check|per|here|recall|the other|another|since|because)\b"
    r"[^=\n]{0,45}$",
    re.I,
)
_CONCLUDES = re.compile(
    r"\b(?:so|thus|therefore|hence|altogether|in total|in all|meaning|rounds? (?:up|down|off)?"
    r"|which (?:is|makes|leaves|gives))\b",
    re.I,
)
_GOVERNED = re.compile(
    r"\b(?:in|per|for|after|over|within|during|every|each|out of|with|up from|from|than|at"
    r"|by|all)\s+(?:the\s+|all\s+|about\s+|\W)?$",
    re.I,
)
# A sentence is looked for at the end only: an answer ends on its result.
TAIL = 4000


def concluding(text: str, start: int, end: int, source: _Source) -> Numeral | None:
    """Return the number that a reader takes for the result of `text[start:end]`, if any."""
    begin = max(start, end - TAIL)
    kept = [span for span in _sentences(text, begin, end) if any(source(text, *span))]
    if not kept:
        return max(source(text, start, end), key=lambda number: number.end, default=None)
    chosen = kept[-1]
    for span in reversed(kept):
        if not _ASIDE.match(text[slice(*span)]):
            chosen = span
            break
    return _within(text, *chosen, source)


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    spans, at = [], start
    for match in _END.finditer(text, start, end):
        spans.append((at, match.start()))
        at = match.end()
    return [*spans, (at, end)]


def _within(text: str, start: int, end: int, source: _Source) -> Numeral:
    for match in reversed(list(_CONCLUDES.finditer(text, start, end))):
        if any(source(text, match.end(), end)):
            start = match.end()
            break
    reason = text.find(" because ", start, end)
    if reason >= 0 and any(source(text, start, reason)):
        end = reason
    equals = text.rfind("=", start, end)
    after = list(source(text, equals + 1, end)) if equals >= 0 else []
    if after:
        return after[0]
    values = list(source(text, start, end))
    if values[0].percent and not values[-1].percent and values[0].value / 100 == values[-1].value:
        return values[0]
    free = [value for value in values if not _GOVERNED.search(text[start : value.start])]
    return (free or values)[-1]
