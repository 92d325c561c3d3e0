"""The answer beside its prompt: an echo of it, or text that belongs to another request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalsuite.degenerate.lexicon import FUNCTION, KNOWN, words
from evalsuite.degenerate.loops import tail_cycle
from evalsuite.degenerate.view import Finding, Reading

_COPY = re.compile(r"\b(?:repeat|copy|echo|say|quote|rewrite|spell|translate|once|correct)\b", re.I)
_GENERAL = words(
    """answer total number times day days week weeks hour hours minute minutes year years dollar
    dollars cost costs price amount many left each cards boxes"""
)
_FRAGMENT = re.compile(r"\s*([a-z][^.!?\n=#]{2,60})[.!?]\s+[A-Z]")
ECHO_WORDS = 6


def prompting(reading: Reading) -> Iterator[Finding]:
    """Find echoes and leaks; silent where no prompt is known."""
    if not reading.prompt or len(reading.tokens) < 4:
        return
    echo = list(_echo(reading))
    yield from echo
    if not echo:
        yield from _leak(reading)


def _echo(reading: Reading) -> Iterator[Finding]:
    """Find an answer that is a piece of its prompt, once or over and over."""
    lower = reading.lower
    prompt = reading.prompt or ""
    if len(lower) < ECHO_WORDS or _COPY.search(reading.asked.text):
        return
    head = reading.text.strip()[:40]
    if len(head) < 16 or head not in prompt:
        return
    body = reading.text.strip()
    copied = _common(body, prompt[prompt.find(head) :])
    cycle = tail_cycle(body) if copied >= 30 and copied < len(body) else None
    over_and_over = cycle is not None and cycle.start == 0 and cycle.period <= copied + 2
    if copied == len(body) or over_and_over:
        yield reading.found("prompt_echo", "high", 0)
    elif copied * 10 >= len(body) * 8:
        yield reading.found("prompt_echo", "low", 0)


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _stem(word: str) -> str:
    for ending in ("'s", "’s", "ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)][:5]
    return word[:5]


def _leak(reading: Reading) -> Iterator[Finding]:
    """Find an answer to another question: neither words nor numbers of this one."""
    asked = reading.asked
    if len(asked.words) < 8:
        return
    content = {w for w in set(reading.lower) - FUNCTION if len(w) > 2 and w[0].isalpha()}
    own = content & asked.words
    if len(own) * 6 <= len(content) and (finding := _other(reading, content, own)):
        yield finding
    else:
        yield from _fragment(reading)


def _other(reading: Reading, content: set[str], own: set[str]) -> Finding | None:
    asked = reading.asked
    stems = set(map(_stem, asked.words))
    own = own | {word for word in content if _stem(word) in stems}
    foreign = content - own - _GENERAL
    numbers = [t.replace(",", "") for t in reading.lower if t[0].isdigit()]
    shared = sum(map(asked.numbers.__contains__, numbers))
    several = len(set(numbers)) >= 4 and len(asked.numbers) >= 2
    if not shared and not own and foreign and (several or len(foreign) >= 6):
        sure = several and len(foreign) >= 4
        return reading.found("other_request", "high" if sure else "low", 0)
    if len(foreign) >= 4 and len(own) * 6 <= len(foreign) and shared * 5 <= len(numbers):
        return reading.found("other_request", "low", 0)
    return None


def _fragment(reading: Reading) -> Iterator[Finding]:
    """Find a text that begins in the middle of a sentence about something else."""
    match = _FRAGMENT.match(reading.text)
    if match is None or any(map(str.isdigit, match[1])):
        return
    words = [word for word in re.findall(r"[a-z]+", match[1].lower()) if word not in FUNCTION]
    stems = set(map(_stem, reading.asked.words))
    strange = [word for word in words if _stem(word) not in stems]
    if strange and (len(strange) == len(words)) and not set(strange) <= KNOWN:
        yield reading.found("leading_fragment", "low", match.start(1))
