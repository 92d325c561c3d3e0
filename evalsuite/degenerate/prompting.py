"""The answer beside its prompt: an echo of it, or text that belongs to another request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evalsuite.degenerate.lexicon import FUNCTION, KNOWN
from evalsuite.degenerate.view import Finding, Reading

_COPY = re.compile(r"\b(?:repeat|copy|echo|say|quote|rewrite|spell|translate|once|correct)\b", re.I)
_GENERAL = frozenset(
    """answer total number times day days week weeks hour hours minute minutes year years dollar
    dollars cost costs price amount many left each cards boxes""".split()
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
    at = prompt.find(head)
    body = reading.text.strip()
    piece = prompt[at : at + len(body)].rstrip()
    if body == piece or (len(piece) >= 30 and body.startswith(piece) and body[len(piece) :].strip() in piece):
        yield reading.found("prompt_echo", "high", 0)
    elif len(piece) * 10 >= len(body) * 6 and body.startswith(piece):
        yield reading.found("prompt_echo", "low", 0)


def _stem(word: str) -> str:
    for ending in ("'s", "’s", "ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)][:5]
    return word[:5]


def _leak(reading: Reading) -> Iterator[Finding]:
    """Find an answer to another question: neither words nor numbers of this one."""
    asked = reading.asked
    content = {w for w in reading.lower if w[0].isalpha() and len(w) > 2 and w not in FUNCTION}
    stems = {_stem(word) for word in asked.words}
    own = {word for word in content if _stem(word) in stems}
    foreign = content - own - _GENERAL
    numbers = [t.replace(",", "") for t in reading.lower if t[0].isdigit()]
    shared = [number for number in numbers if number in asked.numbers]
    if len(asked.words) < 8:
        return
    if not shared and not own and len(foreign) >= 3 and (len(set(numbers)) >= 3 or len(foreign) >= 6):
        sure = len(foreign) >= 4 and len(set(numbers)) >= 4 and len(asked.numbers) >= 2
        yield reading.found("other_request", "high" if sure else "low", 0)
    elif len(foreign) >= 4 and len(own) * 6 <= len(foreign) and len(shared) * 5 <= len(numbers):
        yield reading.found("other_request", "low", 0)
    else:
        yield from _fragment(reading, stems)


def _fragment(reading: Reading, stems: set[str]) -> Iterator[Finding]:
    """Find a text that begins in the middle of a sentence about something else."""
    match = _FRAGMENT.match(reading.text)
    if match is None or any(map(str.isdigit, match[1])):
        return
    words = [word for word in re.findall(r"[a-z]+", match[1].lower()) if word not in FUNCTION]
    strange = [word for word in words if _stem(word) not in stems]
    if strange and (len(strange) == len(words)) and not set(strange) <= KNOWN:
        yield reading.found("leading_fragment", "low", match.start(1))
