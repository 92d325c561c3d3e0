"""The answer a person would read from a text, lm-eval's two readings, and the one outcome.

How an answer is found, first that applies: the value after `####`, the last LaTeX box, the last
"the answer is …", the last sentence that concludes, the last number. Thinking blocks and whatever
follows a leaked turn or the next question are not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from evalsuite.numerals import Numeral, canonical, number_words, numerals
from evalsuite.sentences import concluding

# Part of every protocol: change it whenever a text could be read as another value.
EXTRACTOR_VERSION = "1"

OUTCOMES = ("error", "degenerate", "truncated", "no_answer", "correct", "wrong", "answered")
STATED = frozenset({"marker", "box", "statement"})

_WIDE = {ord(wide): str(digit) for digit, wide in enumerate("０１２３４５６７８９")}
_WIDE.update({ord("．"): ".", ord("，"): ",", ord("－"): "-", ord("％"): "%", ord("＝"): "="})
_MARKS = re.compile(r"<<[^<>]*?=\s*([^<>=]*)>>")
# How far before "is the answer" a value may stand, in characters.
CLAUSE = 120
_THINK = re.compile(
    r"<(?P<tag>think|thinking|thought|reasoning|reflection)>|◁think▷|<\|channel\|>analysis", re.I
)
_ANSWERED = re.compile(
    r"</(?:think|thinking|thought|reasoning|reflection)>|◁/think▷|<\|channel\|>final<\|message\|>"
    r"|assistantfinal",
    re.I,
)
_TURN = re.compile(
    r"<\|(?:im_end|im_start|eot_id|end|endoftext|end_of_text|user|return)\|>|</s>|<eos>"
    r"|<(?:start|end)_of_turn>|<｜[^｜]{1,40}｜>|\[/?INST\]"
    r"|\n[^\S\n]{0,20}(?:\*\*)?(?:Question|Problem|Q|User|Human)(?:\s*\d+)?\s*:"
)
_MARKER = re.compile(r"####[^\S\n]{0,20}([^\n#]{0,200})")
_STATEMENT = re.compile(
    r"(?:\b(?:final\s+)?answers?(?:\*\*)?(?:\s+to\b[^.\n=:]{0,60}?)?(?:\*\*)?\s{0,3}"
    r"(?:would\s+be|should\s+be|must\s+be|will\s+be|is|was|are|[:=])"
    r"|答案(?:是|为|：|:)|答えは|正解は)(?:\*\*)?:?\s{0,20}([^\n]{0,200})",
    re.I,
)
_REVERSED = re.compile(r"\b(?:is|as) (?:the|our|my) (?:final )?answer\b", re.I)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_CORRECTS = re.compile(r"\b(?:wait|actually|correction|mistake|sorry|instead|recheck|redo)\b", re.I)
_HEDGE = re.compile(r"^[\s$*]*(?:or|and|to|/|-|–|,\s*or|maybe|perhaps)[\s$*]+$", re.I)
# One bare number over and over is no answer, whatever its value.
_PARROTED = re.compile(r"\s*(\S{1,12})(?:\s+\1){4,}\s*$")
_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


@dataclass(frozen=True)
class ReadNumber:
    """A value read from a text: exact, with its span `[start, end)` and how it was found."""

    value: Fraction
    start: int
    end: int
    how: str
    percent: bool

    @property
    def stated(self) -> bool:
        """Whether the text says that this is the answer, by marker, box or sentence."""
        return self.how in STATED

    def equals(self, gold: Fraction) -> bool:
        """Whether this is `gold`; `15%` is 15 as well as 0.15."""
        return self.value == gold or (self.percent and self.value / 100 == gold)

    def __str__(self) -> str:
        return canonical(self.value)


def read_number(text: str) -> ReadNumber | None:
    """Return the answer that `text` gives, or None where it gives none, or two that differ."""
    plain = _plain(text)
    region = _region(plain)
    if region is None:
        return None
    start, end = region
    for find in (_marker, _box, _statement, _reversed):
        found, decided = find(plain, start, end)
        if decided:
            return found
    return _unmarked(plain, start, end)


def _plain(text: str) -> str:
    """Same length as `text`: full-width digits made ASCII, calculator marks blanked."""
    wide = text.translate(_WIDE)
    return _MARKS.sub(_blank, wide) if "<<" in wide else wide


def _blank(match: re.Match[str]) -> str:
    following = match.string[match.end() : match.end() + 2].lstrip("$ ")[:1]
    if following.isdigit():
        return " " * len(match[0])
    return " " * (match.start(1) - match.start()) + match[1] + "  "


def _region(text: str) -> tuple[int, int] | None:
    """Where the answer stands; None inside a thinking block that was never closed."""
    start = 0
    for closing in _ANSWERED.finditer(text):
        start = closing.end()
    if _THINK.search(text, start):
        return None
    first = next(numerals(text, start), None)
    if first is not None and (turn := _TURN.search(text, first.end)):
        return start, turn.start()
    return start, len(text)


_Decision = tuple[ReadNumber | None, bool]
_NOTHING: _Decision = (None, False)


def _marker(text: str, start: int, end: int) -> _Decision:
    read: list[tuple[int, _Decision]] = []
    if "####" not in text:
        return _NOTHING
    for match in _MARKER.finditer(text, start, end):
        found = _segment(text, match.start(1), match.end(1), "marker")
        if found[1]:
            read.append((match.start(), found))
    if not read:
        return _NOTHING
    corrected = _CORRECTS.search(text, read[0][0], read[-1][0])
    return read[-1 if corrected else 0][1]


def _box(text: str, start: int, end: int) -> _Decision:
    result = _NOTHING
    for match in _BOX.finditer(text, start, end):
        depth, at = 1, match.end()
        while at < min(end, match.end() + 200) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found = _segment(text, match.end(), at - 1 if not depth else at, "box")
        result = found if found[1] else result
    return result


def _statement(text: str, start: int, end: int) -> _Decision:
    result, at = _NOTHING, start
    while match := _STATEMENT.search(text, at, end):
        sentence = re.search(r"[.!?](?=\s+[A-Z]|\s*$)|[。；]", match[1])
        stop = match.start(1) + sentence.start() if sentence else match.end(1)
        found = _segment(text, match.start(1), stop, "statement")
        result = found if found[1] else result
        at = match.start(1)
    return result


def _reversed(text: str, start: int, end: int) -> _Decision:
    result = _NOTHING
    for match in _REVERSED.finditer(text, start, end):
        begin = max(start, match.start() - CLAUSE)
        opened = max(text.rfind(mark, begin, match.start()) for mark in "\n.;:")
        values = list(numerals(text, max(begin, opened + 1), match.start()))
        result = (_read(values[-1], "statement"), True) if values else result
    return result


def _segment(text: str, start: int, end: int, how: str) -> _Decision:
    """Read the words after a marker: one value, or None where the writer leaves it open."""
    equals = text.rfind("=", start, end)
    values = list(numerals(text, equals + 1 if equals >= 0 else start, end))
    grouped = re.fullmatch(r"\W*(\d{1,3}(?: \d{3})+)\b\D*", text[start:end])
    if grouped:
        value = Fraction(grouped[1].replace(" ", ""))
        number = Numeral(value, start + grouped.start(1), start + grouped.end(1), False)
        return _read(number, how), True
    if not values:
        values = list(number_words(text, start, end))
    if not values:
        return _NOTHING
    negated = re.search(r"\bnot\s+\W*$", text[start : values[0].start])
    if negated and len(values) > 1:
        return _read(values[1], how), True
    if negated:
        return _NOTHING
    return (None, True) if _hedged(text, values) else (_read(values[0], how), True)


def _hedged(text: str, values: list[Numeral]) -> bool:
    if len(values) < 2 or values[0].value == values[1].value:
        return False
    between = text[values[0].end : values[1].start]
    return bool(_HEDGE.match(between)) and "about" not in between


def _unmarked(text: str, start: int, end: int) -> ReadNumber | None:
    if _PARROTED.match(text, start, end):
        return None
    source = numerals if any(numerals(text, start, end)) else number_words
    number = concluding(text, start, end, source)
    return None if number is None else _read(number, "last")


def _read(number: Numeral, how: str) -> ReadNumber:
    return ReadNumber(number.value, number.start, number.end, how, number.percent)


def read_gold(gold: str) -> Fraction:
    """Return the gold value; the part after `####` where the rationale is still there.

    Raises ValueError where `gold` holds no number.
    """
    found = read_number(gold)
    if found is None:
        raise ValueError(f"no number in gold answer {gold[:60]!r}")
    return found.value


def _lm_eval(value: str) -> str:
    # The task's fourth pattern, `(?s).*#### `, cannot match what the two filters let through.
    return re.sub(r"\.$", "", value.replace(",", "").replace("$", "")).lower()


def strict_match(text: str) -> str | None:
    """lm-eval's `strict-match` of gsm8k 3.0 as its metric compares it; None for `[invalid]`."""
    found = _STRICT.search(text)
    return _lm_eval(found[1]) if found else None


def flexible_extract(text: str) -> str | None:
    """lm-eval's `flexible-extract` of gsm8k 3.0 as its metric compares it; None for `[invalid]`."""
    found = [first or second for first, second in _FLEXIBLE.findall(text)]
    return _lm_eval(found[-1]) if found else None


@dataclass(frozen=True)
class Score:
    """What one answer is worth: the outcome, the value read, lm-eval's two readings."""

    outcome: str
    answer: str | None
    strict: str | None
    flexible: str | None


def score(
    text: str | None,
    *,
    gold: Fraction | None,
    finish_reason: str | None,
    degenerate: bool,
    error: str | None = None,
) -> Score:
    """Score one answer. `degenerate`: a high-confidence rule fired; `text` None: none came."""
    found = None if text is None else read_number(text)
    return Score(
        outcome=outcome(
            text, found, gold, finish_reason=finish_reason, degenerate=degenerate, error=error
        ),
        answer=None if found is None else str(found),
        strict=None if text is None else strict_match(text),
        flexible=None if text is None else flexible_extract(text),
    )


def outcome(
    text: str | None,
    found: ReadNumber | None,
    gold: Fraction | None,
    *,
    finish_reason: str | None,
    degenerate: bool,
    error: str | None = None,
) -> str:
    """Return the first of `OUTCOMES` that applies; `found` is what `read_number(text)` gave."""
    if text is None or error is not None or finish_reason == "error":
        return "error"
    if degenerate:
        return "degenerate"
    if finish_reason == "length" and not _given(text, found):
        return "truncated"
    if found is None:
        return "no_answer"
    if gold is None:
        return "answered"
    return "correct" if found.equals(gold) else "wrong"


def _given(text: str, found: ReadNumber | None) -> bool:
    """Whether the answer was out before the budget ended: stated, and not cut in its digits."""
    return found is not None and found.stated and text[found.end :].strip(" .,%$*") != ""
