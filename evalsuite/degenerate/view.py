"""What the detectors look at, and what they return."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from evalsuite.degenerate.lexicon import ABBREVIATIONS, ENDINGS, KNOWN

Confidence = Literal["high", "low"]
EXCERPT = 80

_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d+(?:[.,]\d+)*|\.\d+|[^\w\s]|_")
_TARGET = re.compile(r"(?:^|\n)\s*(?:Question|Q|Problem)\s*\d*\s*:|<\|(?:im_start\|>)?user(?:\|>)?")
# How much of a prompt is read: the last turn of a long few-shot prompt is enough.
PROMPT_TAIL = 6000


@dataclass(frozen=True)
class AnswerView:
    """One answer, with whatever else is known about it."""

    text: str
    token_ids: Sequence[int] | None = None
    finish_reason: str | None = None
    prompt: str | None = None
    reference: str | None = None
    gold: str | None = None


@dataclass(frozen=True)
class Finding:
    """What one rule saw: `start` is a character offset into the text, `excerpt` the text there."""

    rule: str
    confidence: Confidence
    start: int
    excerpt: str


class Reading:
    """An answer cut up once for all detectors. `start` offsets are characters of `text`."""

    def __init__(self, view: AnswerView) -> None:
        self.text = view.text
        self.prompt = view.prompt
        self.finish = view.finish_reason
        self.token_ids = view.token_ids
        self.reference = view.reference
        self.ascii = view.text.isascii()

    @cached_property
    def tokens(self) -> list[str]:
        """Words, numbers and single signs, in order."""
        return _TOKEN.findall(self.text)

    @cached_property
    def lower(self) -> list[str]:
        """`tokens` in lower case."""
        return [token.lower() for token in self.tokens]

    @cached_property
    def kinds(self) -> str:
        """One character a token: `n` number, `w` word, else the sign itself."""
        return "".join([_KIND.get(token[0]) or _kind(token) for token in self.tokens])

    @cached_property
    def repeats(self) -> int:
        """How many runs of three tokens occurred before."""
        tokens = self.lower
        count = len(tokens) - 2
        return count - len(set(zip(tokens, tokens[1:], tokens[2:], strict=False)))

    @cached_property
    def strange(self) -> list[str]:
        """The distinct words that neither English at large nor the prompt explains."""
        unknown = set(self.lower) - KNOWN - self.asked.words - ABBREVIATIONS
        return [word for word in unknown if len(word) > 1 and word[0].isalpha() and self._odd(word)]

    def _odd(self, word: str) -> bool:
        stems = [word[: -len(ending)] for ending in ENDINGS if word.endswith(ending)]
        return not any(stem in KNOWN or stem in self.asked.words for stem in stems)

    @cached_property
    def asked(self) -> PromptWords:
        """The words, numbers and wishes of the prompt's last question."""
        return prompt_words(self.prompt or "")

    def offset(self, index: int) -> int:
        """Return where token `index` starts in the text."""
        for position, match in enumerate(_TOKEN.finditer(self.text)):
            if position == index:
                return match.start()
        return len(self.text)

    def found(self, rule: str, confidence: Confidence, start: int) -> Finding:
        """Make a finding with its excerpt."""
        start = max(0, min(start, len(self.text)))
        return Finding(rule, confidence, start, self.text[start : start + EXCERPT])

    def at_token(self, rule: str, confidence: Confidence, index: int) -> Finding:
        """Make a finding that starts at token `index`."""
        return self.found(rule, confidence, self.offset(index))


_KIND = {chr(code): "w" for code in (*range(65, 91), *range(97, 123))}
_KIND.update({sign: sign for sign in "!\"#$%&'()*+,-/:;<=>?@[]^_`{|}~"})
_KIND.update({str(digit): "n" for digit in range(10)})


def _kind(token: str) -> str:
    first = token[0]
    if first.isalpha():
        return "w"
    return "n" if first.isdigit() or len(token) > 1 else first


@dataclass(frozen=True)
class PromptWords:
    """The last question of a prompt: its text, words and numbers, and whether it wants copies."""

    text: str
    words: frozenset[str]
    numbers: frozenset[str]
    wants_repetition: bool


_WANTS = re.compile(
    r"\b(?:repeat|times|copies|copy|sing|song|say|echo|print|draw|count|list|table|digits|pattern"
    r"|write|poem|syllable|row of|show|googol|places|decimals?|stars|marks)\b",
    re.I,
)


@lru_cache(maxsize=1 << 14)
def prompt_words(prompt: str) -> PromptWords:
    """Cut up the last question of `prompt` (the whole of it where no question is marked)."""
    text = prompt[-PROMPT_TAIL:]
    marks = list(_TARGET.finditer(text))
    if marks:
        text = text[marks[-1].end() :]
    tokens = _TOKEN.findall(text.lower())
    words = frozenset(token for token in tokens if token[0].isalpha())
    numbers = frozenset(token.replace(",", "") for token in tokens if token[0].isdigit())
    return PromptWords(text, words, numbers, bool(_WANTS.search(text)))
