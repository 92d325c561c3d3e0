"""Reading one numeral: signs, separators, currency, percent, fractions, powers, number words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

# Longer runs of digits are no quantity, and int() refuses very long ones.
MAX_DIGITS = 60
MAX_EXPONENT = 60

_VULGAR = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_SIGNS = r"\-−–‐‑﹣－"
_CURRENCY = r"(?:\\?[$€£¥₹₩₽]|US\\?\$|USD\s?|EUR\s?|GBP\s?|Rs\.?\s?)"
_THIN = "\u00a0\u2009\u202f"
_DIGITS = rf"\d+(?:[.,'’{_THIN}]\d+)*"
_POWER = (
    r"(?:[eE][-+]?\d{1,3}(?![\w.])|\s?(?:[×*]|\\times)\s?10\s?(?:\^|\*\*)\s?\{?[-−]?\d{1,3}\}?)"
)
_FRACTION = r"\\d?t?frac\s?\{(?P<top>\d+)\}\s?\{(?P<bottom>\d+)\}"
_SIGNED = rf"(?:(?P<word>\b[Mm]inus|\b[Nn]egative)\s+|(?P<sign>[{_SIGNS}])\s?)?"
_NUMERAL = re.compile(
    rf"{_SIGNED}(?P<currency>{_CURRENCY}\s?)?(?P<inner>[{_SIGNS}])?"
    rf"(?:(?P<lead>\d+)?\s?{_FRACTION}"
    rf"|(?P<whole>\d+)\s(?P<num>\d+)\s?/\s?(?P<den>\d+)(?![\d/])"
    rf"|(?P<over>{_DIGITS})\s?/\s?(?P<under>{_DIGITS})(?!\d*\s?/)"
    rf"|(?P<mixed>\d+)?\s?(?P<vulgar>[{''.join(_VULGAR)}])"
    rf"|(?P<digits>\.?{_DIGITS}))"
    rf"(?P<power>{_POWER})?"
    r"(?P<scale>\s(?:thousand|million|billion|trillion)\b)?"
    r"(?P<percent>\s?\\?[%％]|\spercent\b)?"
)
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


@dataclass(frozen=True)
class Numeral:
    """One number in a text: exact `value`, and the span `[start, end)` it was read from."""

    value: Fraction
    start: int
    end: int
    percent: bool


def numerals(text: str, start: int = 0, end: int | None = None) -> Iterator[Numeral]:
    """Yield the numbers of `text[start:end]` in order, passing over runs that are no quantity."""
    stop = len(text) if end is None else end
    for match in _NUMERAL.finditer(text, start, stop):
        value = _value(match)
        if value is not None:
            negative, begin = _sign(text, match)
            yield Numeral(-value if negative else value, begin, match.end(), bool(match["percent"]))


def _value(match: re.Match[str]) -> Fraction | None:
    base = _base(match)
    if base is None:
        return None
    if match["power"]:
        found = re.search(r"[-−]?\d+\}?$", match["power"])
        exponent = int(found[0].rstrip("}").replace("−", "-")) if found else 0
        if abs(exponent) > MAX_EXPONENT:
            return None
        base *= Fraction(10) ** exponent
    return base * _SCALES[match["scale"].strip()] if match["scale"] else base


def _base(match: re.Match[str]) -> Fraction | None:
    if match["digits"] is not None:
        return plain(match["digits"])
    if match["vulgar"] is not None:
        top, bottom = _VULGAR[match["vulgar"]].split("/")
        return _ratio(plain(top), plain(bottom), plain(match["mixed"] or "0"))
    if match["top"] is not None:
        return _ratio(plain(match["top"]), plain(match["bottom"]), plain(match["lead"] or "0"))
    if match["whole"] is not None:
        return _ratio(plain(match["num"]), plain(match["den"]), plain(match["whole"]))
    return _ratio(plain(match["over"]), plain(match["under"]), Fraction(0))


def _ratio(top: Fraction | None, bottom: Fraction | None, lead: Fraction | None) -> Fraction | None:
    if top is None or bottom is None or lead is None or bottom == 0:
        return None
    return lead + top / bottom


def plain(run: str) -> Fraction | None:
    """Read digits with `.`, `,`, apostrophes or thin spaces between; None where they are no number.

    `9,800`, `9.800`, `9'800` and `9.800,00` are 9800; `17,50` is 17.5; `0.0.0` is nothing.
    """
    if len(run) > MAX_DIGITS or re.fullmatch(r"0{6,}", run):
        return None
    body = re.sub(rf"['’{_THIN}]", "", run)
    if run[:1] != "." and "." in body and "," in body:
        return _two_marks(body)
    if "," in body:
        return _commas(body)
    if body.count(".") > 1 or re.fullmatch(r"[1-9]\d{0,2}\.\d00", body):
        return _exact(body.replace(".", "")) if _grouped(body, ".") else None
    return _exact(body)


def _two_marks(body: str) -> Fraction | None:
    point, separator = (".", ",") if body.rfind(".") > body.rfind(",") else (",", ".")
    whole, _, decimals = body.rpartition(point)
    if separator in decimals or point in whole or not _grouped(whole, separator):
        return None
    return _exact(f"{whole.replace(separator, '')}.{decimals}")


def _commas(body: str) -> Fraction | None:
    if _grouped(body, ",") or re.fullmatch(r"\d{1,2}(?:,\d\d)*,\d{3}", body):
        return _exact(body.replace(",", ""))
    return _exact(body.replace(",", ".")) if body.count(",") == 1 else None


def _grouped(body: str, mark: str) -> bool:
    head, *rest = body.split(mark)
    return 1 <= len(head) <= 3 and bool(rest) and all(len(part) == 3 for part in rest)


def _exact(digits: str) -> Fraction | None:
    try:
        return Fraction("0" + digits if digits.startswith(".") else digits)
    except ValueError:
        return None


def _sign(text: str, match: re.Match[str]) -> tuple[bool, int]:
    """Whether the numeral is negative, and where it begins: a dash after a value is an operator."""
    begin = match.start()
    if match["word"]:
        before = text[:begin].rstrip()[-1:]
        if before.isdigit():
            return False, match.end("word")
        return True, begin
    if not match["sign"]:
        return bool(match["inner"]), begin
    spaced = text[match.end("sign") : match.end("sign") + 1].isspace()
    before = text[max(0, begin - 40) : begin].rstrip()[-1:]
    adjacent = text[max(0, begin - 1) : begin]
    value_before = before.isdigit() or before in (")", "%", "]") or adjacent.isalpha()
    if value_before or (spaced and before in ("", "\n", ".", ":", ";", ",")):
        return bool(match["inner"]), match.end("sign")
    return not spaced or before in "=(", begin


_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_ROUND = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS = {word: number for number, word in enumerate(re.findall(r"\w+", _SMALL))}
_TENS = {word: 10 * number for number, word in enumerate(re.findall(r"\w+", _ROUND), start=2)}
_WORD = (
    rf"(?:{'|'.join(sorted([*_UNITS, *_TENS, 'hundred', 'thousand', 'million'], reverse=True))})"
)
_WORDS = re.compile(rf"\b{_WORD}(?:(?:[\s-]|\sand\s){_WORD})*\b", re.IGNORECASE)


def number_words(text: str, start: int = 0, end: int | None = None) -> Iterator[Numeral]:
    """Yield the numbers that `text[start:end]` spells out in English words."""
    stop = len(text) if end is None else end
    for match in _WORDS.finditer(text, start, stop):
        minus = re.search(r"\b(?:minus|negative)\s+$", text[start : match.start()], re.IGNORECASE)
        value = _spelled(re.findall(_WORD, match[0].lower()))
        yield Numeral(Fraction(-value if minus else value), match.start(), match.end(), False)


def _spelled(words: list[str]) -> int:
    total, group = 0, 0
    for word in words[:20]:
        if word == "hundred":
            group = max(group, 1) * 100
        elif word in ("thousand", "million"):
            total, group = total + max(group, 1) * _SCALES[word], 0
        else:
            group += _UNITS.get(word, 0) + _TENS.get(word, 0)
    return total + group


def canonical(value: Fraction) -> str:
    """Write `value` shortest: an integer, a finite decimal, or `a/b` where no decimal is finite."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    places = 1
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs((value * 10**places).numerator)).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
