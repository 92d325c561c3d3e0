"""Whether an answer is language at all: salad, lost spaces, cut words, other scripts, soup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from evalsuite.degenerate.lexicon import ENDINGS, FOREIGN, FUNCTION, KNOWN
from evalsuite.degenerate.view import Finding, Reading

_SCRIPTS = (
    (0x0370, 0x03FF, "greek"), (0x0400, 0x052F, "cyrillic"), (0x0530, 0x058F, "armenian"),
    (0x0590, 0x05FF, "hebrew"), (0x0600, 0x07BF, "arabic"), (0x0900, 0x097F, "devanagari"),
    (0x0980, 0x0DFF, "indic"), (0x0E00, 0x0EFF, "thai"), (0x10A0, 0x10FF, "georgian"),
    (0x1100, 0x11FF, "hangul"), (0x1200, 0x139F, "ethiopic"), (0x1780, 0x17FF, "khmer"),
    (0x3040, 0x30FF, "han"), (0x3400, 0x9FFF, "han"), (0xAC00, 0xD7AF, "hangul"),
    (0xF900, 0xFAFF, "han"), (0x20000, 0x2FA1F, "han"),
)  # fmt: skip
_OTHER = re.compile(r"[\u0370-\u1fff\u3040-\ud7ff\uf900-\ufaff\U00020000-\U0002fa1f]")
_TOPIC = re.compile(
    r"\b(?:chinese|japanese|korean|russian|greek|arabic|hebrew|hindi|thai|german|french|spanish"
    r"|language|characters?|translat\w*|alphabet)\b",
    re.I,
)
_QUOTED = re.compile(r"[\"'«„“‘「『][^\"'»“”’」』]{1,40}[\"'»”’」』]")
_GLUED = re.compile(
    r"[^\W\d_]{2}\d+(?:[.,]\d+)*|\d[.,]{2}(?![.,\s])|,\d+,\d+\.|\.\d+\.\.|\d[a-z]\.\d"
)
_CODE = re.compile(
    r"[={(;][ \t]*$|^[ \t]*(?:def|import|for|print|assert|return|class)\b|\w\(\w*\)|https?:|/\w+/",
    re.M,
)
_ODD_RUN = re.compile(r"[{}\[\]|\\^~`@;<>$_]{2,}|[}\])],[{\[(]|[≡◣✗◆■◇▲►☐⊕∇∮§¶¤¬]")
_LATEX = re.compile(r"\\[a-zA-Z(\[]|\$\$|```")


def language(reading: Reading) -> Iterator[Finding]:
    """Find text that is no language, or another one than asked for."""
    if len(reading.tokens) < 3:
        return
    if not reading.ascii:
        yield from _scripts(reading)
    yield from _salad(reading)
    yield from _spaces(reading)
    yield from _cut_words(reading)
    yield from _soup(reading)


def script_of(letter: str) -> str:
    """Return the script of a letter; kana and Han count as one, an unlisted one as `latin`."""
    code = ord(letter)
    for low, high, name in _SCRIPTS:
        if low <= code <= high:
            return name
    return "latin"


@lru_cache(maxsize=1 << 14)
def _prompt_scripts(prompt: str) -> frozenset[str]:
    return frozenset(script_of(letter) for letter in prompt if letter.isalpha())


def _scripts(reading: Reading) -> Iterator[Finding]:
    if not _OTHER.search(reading.text) and (reading.prompt or "").isascii():
        return
    letters = [(at, script_of(c)) for at, c in enumerate(reading.text[:20000]) if c.isalpha()]
    counts = Counter(name for _, name in letters)
    if counts.get("greek", 0) <= 4:
        counts.pop("greek", None)
    if len(counts) < 2 and not (counts and reading.prompt):
        return
    home = set(_prompt_scripts(reading.prompt)) if reading.prompt else set()
    home |= {"latin"} if counts.get("latin", 0) * 3 > len(letters) or "han" in counts else set()
    home = home or {counts.most_common(1)[0][0]}
    foreign = {name: count for name, count in counts.items() if name not in home}
    if not foreign or (sum(foreign.values()) < 40 and _about_language(reading)):
        return
    start = next(at for at, name in letters if name in foreign)
    sure = len(foreign) >= 2 and sum(foreign.values()) >= 3 and len(counts) >= 3
    yield reading.found("foreign_script", "high" if sure else "low", start)


def _about_language(reading: Reading) -> bool:
    return bool(_TOPIC.search(reading.text) or _TOPIC.search(reading.asked.text))


def _salad(reading: Reading) -> Iterator[Finding]:
    """Find words that belong to no sentence: hardly a function word, hardly a known one."""
    words = [token for token in reading.lower if token[0].isalpha() and token < "\u0250"]
    count = len(words)
    if count < 8:
        return
    function = sum(map(FUNCTION.__contains__, words))
    if function * 8 > count or _CODE.search(reading.text):
        return
    foreign = sum(map(FOREIGN.__contains__, words))
    strange = reading.strange
    share = len(strange) / len(set(words))
    if share < 0.6 or (function + foreign) * 8 > count or _other_language(reading, strange):
        return
    sure = (
        count >= 16 and share >= 0.75 and (function + foreign) * 12 < count and bool(reading.prompt)
    )
    yield reading.found("word_salad", "high" if sure else "low", 0)


def _other_language(reading: Reading, strange: list[str]) -> bool:
    """A prompt in the same language explains words that are strange to English."""
    prompt = reading.asked.words
    if not prompt:
        return False
    english = sum(map(FUNCTION.__contains__, prompt)) / len(prompt)
    return english < 0.2 and "latin" in _prompt_scripts(reading.prompt or "")


def _spaces(reading: Reading) -> Iterator[Finding]:
    text = reading.text
    size = len(text)
    if size < 40 or text.count(" ") * 25 > size or not reading.ascii:
        return
    letters = sum(map(str.isalpha, text))
    longest = max(map(len, reading.tokens))
    if (
        letters * 2 > size
        and longest > 14
        and len(text.split()) * 20 < size
        and not _CODE.search(text)
    ):
        packed = any(word in max(reading.lower, key=len) for word in ("the", "is", "and", "are"))
        yield reading.found("lost_spaces", "high" if packed else "low", 0)


def _cut_words(reading: Reading) -> Iterator[Finding]:
    """Find words that are the beginnings of words the prompt or the answer holds in full."""
    if not reading.prompt:
        return
    strange = reading.strange
    if not strange:
        return
    tokens, lower = reading.tokens, reading.lower
    full = reading.asked.words | {word for word in lower if len(word) > 4}
    cut = {word: lower.index(word) for word in strange if _is_cut(word, full)}
    if not cut:
        return
    final = cut.get(lower[-1]) == len(tokens) - 1 and reading.finish == "stop"
    if len(cut) >= 4 and len(cut) * 12 >= len(tokens):
        yield reading.at_token("cut_words", "high", min(cut.values()))
    elif len(cut) >= 2 or (final and reading.text[-1:].isalpha()):
        yield reading.at_token("cut_words", "low", min(cut.values()))


_BEGINNINGS = frozenset(
    word[:size]
    for word in KNOWN
    for size in range(2, len(word))
    if word[size:] not in ENDINGS and len(word) >= 4
)


def _is_cut(word: str, full: frozenset[str] | set[str]) -> bool:
    return word in _BEGINNINGS or any(
        whole.startswith(word) and whole != word and whole[len(word) :] not in ENDINGS
        for whole in full
    )


def _formal(text: str) -> bool:
    return bool(_CODE.search(text) or _LATEX.search(text))


def _soup(reading: Reading) -> Iterator[Finding]:
    """Find digits glued to words, runs of signs, words of another language in an English answer."""
    text = reading.text
    glued = _GLUED.findall(text)
    if len(glued) >= 3 and len(glued) * 8 >= len(reading.tokens) and not _formal(text):
        yield reading.found("token_soup", "high" if len(glued) >= 5 else "low", 0)
        return
    odd = _ODD_RUN.search(text) if "<<" not in text and "|" not in text else None
    if odd and odd[0] not in (reading.prompt or "") and not _formal(text):
        yield reading.found("stray_signs", "low", odd.start())
    if not FOREIGN.isdisjoint(reading.lower) and len(FUNCTION & reading.asked.words) >= 5:
        asked = reading.asked.words
        foreign = [word for word in reading.lower if word in FOREIGN and word not in asked]
        if len(set(foreign)) >= 2 and not _about_language(reading):
            at = reading.lower.index(foreign[0])
            yield reading.at_token("foreign_words", "high" if len(set(foreign)) >= 6 else "low", at)
