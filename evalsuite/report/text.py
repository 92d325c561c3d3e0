"""How values and foreign text are written in every report."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

Value = float | int | str | bool | None

# Characters that turn the direction of text, join or hide letters: shown by their number.
_HIDDEN = frozenset(
    "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\ufeff\ufffe\uffff"
)
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+|~!])")


def visible(text: str) -> str:
    """Return `text` with every character that could act instead of being read made readable.

    Control characters become their symbols (U+2400 …), marks of direction and lone surrogates their
    number in angle brackets; newlines and tabs stay.
    """
    return "".join(_visible(sign) for sign in text)


def _visible(sign: str) -> str:
    code = ord(sign)
    if sign in "\n\t" or 32 <= code < 127:
        return sign
    if code < 32:
        return chr(0x2400 + code)
    if code == 127:
        return "\u2421"
    if sign in _HIDDEN or 0x80 <= code < 0xA0 or unicodedata.category(sign) in ("Cs", "Cf"):
        return f"⟨U+{code:04X}⟩"
    return sign


def one_line(text: str, limit: int) -> str:
    """Return the visible text on one line of at most `limit` characters, its cut marked."""
    flat = " ".join(visible(text[: 4 * limit]).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def markdown(text: str) -> str:
    """Return `text` as it reads in Markdown: no markup, HTML, mention or link acts."""
    escaped = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _MARKDOWN.sub(r"\\\1", escaped).replace("@", "&#64;")
    # GitHub turns bare addresses into links.
    return " ".join(escaped.split()).replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def fenced(text: str) -> str:
    """Return `text` in a Markdown code fence that no text of its own can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}"


def percent(share: float) -> str:
    """Return a share as `93.75%`."""
    return f"{100 * share:.2f}%"


def points(share: float) -> str:
    """Return a difference of shares as `+1.25 points`."""
    value = 100 * share
    return f"{value:+.2f} points" if round(value, 2) else "±0.00 points"


def p_value(p: float) -> str:
    """Return `p = 0.012`."""
    return f"p = {p:.2g}" if p >= 1e-6 else f"p = {p:.0e}"


def seconds(value: float) -> str:
    """Return seconds with as many digits as matter."""
    return f"{value:,.1f} s" if value >= 10 else f"{value:.2f} s"


def plain(value: object) -> str:
    """Return a figure of a finding or a policy value as it is read."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "; ".join(f"{key} {plain(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(plain(inner) for inner in value) or "none"
    return str(value)


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return `1 item`, `2 items`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


FILTERS: dict[str, Callable[..., str]] = {
    "visible": visible,
    "percent": percent,
    "plain": plain,
    "one_line": one_line,
}
