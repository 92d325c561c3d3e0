"""Foreign text made readable: nothing acts, nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalsuite.report.text import fenced, markdown, one_line, plain, points, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b", "a␀b␛"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("x\u200by\x85z", "x⟨U+200B⟩y⟨U+0085⟩z"),
        ("line\n\tnext", "line\n\tnext"),
        ("\ud800", "⟨U+D800⟩"),
        ("água 水 😀", "água 水 😀"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_what_is_visible_holds_no_control_and_can_be_encoded(text: str) -> None:
    shown = visible(text)
    assert all(ord(sign) >= 32 or sign in "\n\t" for sign in shown)
    shown.encode("utf-8")


@given(st.text(alphabet="`~ab\n"))
def test_no_text_closes_its_own_fence(text: str) -> None:
    lines = fenced(text).split("\n")
    fence = lines[0].removesuffix("text")
    assert lines[-1] == fence
    assert not any(line.strip().startswith(fence) for line in lines[1:-1])


@pytest.mark.parametrize(
    "text",
    ["<img src=x>", "![a](b)", "@everyone", "a | b", "# head", "[x](javascript:1)", "http://e.x"],
)
def test_markdown_does_not_act(text: str) -> None:
    written = markdown(text)
    assert "<" not in written and "@" not in written and "://" not in written
    for sign in "![]()|#":
        assert (
            written.count(sign) - written.count(f"\\{sign}")
            == written.count(f"&{sign}")
            == (written.count("&#") if sign == "#" else 0)
        )


def test_one_line_marks_its_cut() -> None:
    assert one_line("a\n b", 10) == "a b"
    assert one_line("abcdef", 4) == "abc…"


def test_values() -> None:
    assert plain(None) == "missing" and plain([]) == "none" and plain({"a": 0.5}) == "a 0.5"
    assert points(-0.0125) == "-1.25 points" and points(0.0) == "±0.00 points"
