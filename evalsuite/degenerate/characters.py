"""Characters and markers that no answer holds: broken bytes, vocabulary symbols, special tokens."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from evalsuite.degenerate.view import Confidence, Finding, Reading

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_INVISIBLE = re.compile(r"[\u200b\u200c\u200e\u200f\u2060-\u2064\ufeff\u00ad\u3164\u115f]{6,}")
_BLANKS = re.compile(r"[ \t\u00a0\u2000-\u200a\u3000]{80,}|(?:[^\S\n]*\n){16,}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_UNSURE = re.compile(r"[\ue000-\uf8ff\ufffe\uffff\x80-\x9f]")
# UTF-8 read as Latin-1 or cp1252, and the well-known results of GBK mix-ups.
_MISREAD = re.compile(
    r"[ÂÃ][\x80-\xbf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â€[\x80-\xbf™œ“”˜¦¢“]?|ðŸ|ï»¿|ï¿½|"
    r"(?:[ÐÑ][\x80-\xbf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]){2,}|(?:[РС][°-ї‚-™]){3,}|锟斤拷|烫烫|屯屯"
)
_BYTE_LEVEL = re.compile(r"[ĠĊĉ](?=\S|$)|[âÃÂ][Ģ-łĀ-ġ]|▁")
_WORDPIECE = re.compile(r"(?<=\w)\s##[^\W\d_]{1,15}\b|\w@@(?=\s)")
_SPECIAL = re.compile(
    r"<\|[a-zA-Z_][\w ]{0,40}\|>|<｜[^｜<>]{1,40}｜>|</?s>|</w>|<0x[0-9A-Fa-f]{2}>"
    r"|</?(?:pad|unk|bos|eos|mask|cls|sep|eop|sop|eot|eod|blank|null|image|audio|usr|sys)>"
    r"|<(?:start|end)_of_(?:turn|text|image)>|<(?:unused|extra_id_|reserved|special|dummy)_?\w{0,12}>"
    r"|<fim_\w{3,10}>|<\[?(?:begin|end)[▁_ ]of[▁_ ]\w+\]?>|\[(?:PAD|UNK|CLS|SEP|MASK|BOS|EOS|/?INST"
    r"|gMASK|unused\d+|sMASK)\]|<<?/?SYS>?>|<\|(?=\s|$)",
    re.I,
)
_BRACKETED = re.compile(r"</?(?:think|tool_call|answer|tool_response|reasoning)>", re.I)
_MENTION = re.compile(
    r"\b(?:tokens?|markers?|tags?|templates?|padd(?:ed|ing)|vocabulary|tokeni[sz]er|html|xml"
    r"|special|placeholder|symbols?|delimiters?)\b",
    re.I,
)
# A sentence about a marker sets it apart; a leak is glued to a word or stands at an end.
_FLANKED = re.compile(r"[\s\"'`(“‘/]\0[\s\"'`),.;:!?”’/]")
_CHANNELS = re.compile(r"(?:assistant|user)?(?:assistant(?:final|analysis|commentary))")
_ROLES = re.compile(r"(?:^|\n)\s*(?:assistant|user|system)\s*(?:\n|$)")


def characters(reading: Reading) -> Iterator[Finding]:
    """Find broken and invisible characters and symbols of a vocabulary."""
    text = reading.text
    if match := _CONTROL.search(text):
        yield reading.found("control_characters", "high", match.start())
    if match := _BLANKS.search(text):
        level: Confidence = "high" if match.end() >= len(text.rstrip()) else "low"
        sure = reading.finish == "length" or len(match[0]) >= 200
        yield reading.found("blank_flood", level if sure else "low", match.start())
    if "##" in text or "@@" in text:
        pieces = _WORDPIECE.findall(text)
        if len(pieces) >= 2 and (match := _WORDPIECE.search(text)):
            yield reading.found("undecoded_pieces", "high", match.start())
    if not reading.ascii:
        yield from _broken(reading)


def _broken(reading: Reading) -> Iterator[Finding]:
    text = reading.text
    if match := _INVISIBLE.search(text):
        yield reading.found("invisible_flood", "high", match.start())
    yield from _replaced(reading)
    for rule, pattern, many in (
        ("half_surrogate", _SURROGATE, 1),
        ("broken_characters", _UNSURE, 2),
        ("misread_encoding", _MISREAD, 2),
        ("undecoded_pieces", _BYTE_LEVEL, 2),
    ):
        match = pattern.search(text)
        if match and match[0] not in (reading.prompt or ""):
            count = len(pattern.findall(text))
            yield reading.found(rule, "high" if count >= many else "low", match.start())


def _replaced(reading: Reading) -> Iterator[Finding]:
    """Find U+FFFD; one at the very end is a character that the budget cut."""
    text = reading.text
    body = text.rstrip("\ufffd") if reading.finish == "length" else text
    if len(text) - len(body) > 3:
        body = text
    count = body.count("\ufffd")
    if count and "\ufffd" not in (reading.prompt or ""):
        level: Confidence = "high" if count >= 2 else "low"
        yield reading.found("replacement_characters", level, body.find("\ufffd"))


def special_tokens(reading: Reading) -> Iterator[Finding]:
    """Find special tokens, turn markers and channel names that were printed as text."""
    text = reading.text
    if "<" in text or "[" in text:
        yield from _markers(reading)
    if "assistant" in text or "user" in text or "system" in text:
        channels = len(_CHANNELS.findall(text))
        if channels:
            level: Confidence = "high" if channels >= 2 else "low"
            yield reading.found("channel_leak", level, text.find("assistant"))
        elif (roles := _ROLES.findall(text)) and (match := _ROLES.search(text)):
            yield reading.found("role_leak", "high" if len(roles) >= 2 else "low", match.start())


def _around(text: str, mark: re.Match[str]) -> str:
    """The marker as one sign, with the character on each side of it."""
    return text[mark.start() - 1 : mark.start()] + "\0" + text[mark.end() : mark.end() + 1]


def _markers(reading: Reading) -> Iterator[Finding]:
    text = reading.text
    marks = list(_SPECIAL.finditer(text))
    if marks:
        covered = sum(len(mark[0]) for mark in marks)
        row = any(a.end() >= b.start() - 1 for a, b in itertools.pairwise(marks))
        rest = _SPECIAL.sub(" ", text)
        topic = _MENTION.search(rest) or _MENTION.search(reading.asked.text)
        known = any(mark[0] in reading.asked.text for mark in marks)
        flanked = all(map(_FLANKED.search, (_around(text, mark) for mark in marks)))
        mentioned = (topic or known) and flanked and not row and covered * 2 < len(text)
        if not mentioned:
            yield reading.found("special_tokens", "high", marks[0].start())
            return
    tags = list(_BRACKETED.finditer(text))
    if len(tags) >= 5 and not _MENTION.search(reading.asked.text):
        bare = len(_BRACKETED.sub("", text).strip()) < 4 * len(tags)
        yield reading.found("special_tokens", "high" if bare else "low", tags[0].start())
