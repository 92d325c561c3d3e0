"""Hostile output in a real browser: nothing runs, nothing breaks out, and the policy forbids it."""

from __future__ import annotations

import html
import re

import pytest
from pagedriver import Page
from report_runs import HOSTILE, Judged


@pytest.fixture
def attacked(chrome: object, hostile: Judged) -> Page:
    return Page(chrome, hostile.folder / "report.html")


def questions_of(page: Page) -> list[str]:
    """Return the questions of the first items, as they are shown."""
    page.press(*"k" * 40)
    found = [page.text("#detail .question")]
    for _ in HOSTILE:
        page.press("j")
        found.append(page.text("#detail .question"))
    return found


def test_no_hostile_text_acts_in_any_item(attacked: Page) -> None:
    for _ in range(40):
        attacked.press("j")
        assert attacked.run("return window.pwned") is None
    made = "return document.querySelectorAll('#detail img, iframe, #detail a, #detail svg').length"
    assert attacked.run(made) == 0
    assert attacked.complaints() == []


def test_hostile_text_is_shown_as_it_is(attacked: Page) -> None:
    questions = questions_of(attacked)
    for text in HOSTILE[:6]:
        assert any(text in question for question in questions)


def test_characters_that_act_are_shown_by_number(attacked: Page) -> None:
    questions = questions_of(attacked)
    assert any("⟨U+202E⟩right to left⟨U+202C⟩" in question for question in questions)
    assert any("nul ␀ bell ␇ escape ␛[31m delete" in question for question in questions)
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", attacked.text("#detail"))


def test_a_megabyte_on_one_line_stays_in_its_box(attacked: Page) -> None:
    attacked.find("#f-text").send_keys("AAAAAAAAAAAAAAAA")
    assert attacked.shown() == 1
    assert attacked.run("return document.documentElement.scrollWidth") <= 1280
    assert attacked.find("#detail").size["height"] < 2500
    assert "more characters are in records.jsonl" in attacked.text("#detail")


def test_an_answer_that_was_not_obtained_says_why(attacked: Page) -> None:
    attacked.choose("outcome", "error")
    attacked.choose("arm", "mtp1")
    assert attacked.shown() == 1
    assert "no answer was obtained:" in attacked.text("#detail")


def test_the_policy_stops_a_script_that_gets_into_the_page(chrome: object, hostile: Judged) -> None:
    clean = hostile.page
    assert "content=\"default-src 'none'; script-src 'sha256-" in html.unescape(clean[:2000])
    torn = hostile.folder / "torn.html"
    attack = "<script>window.pwned=1</script><img src=x onerror='window.pwned=2'></footer>"
    torn.write_text(clean.replace("</footer>", attack), encoding="utf-8")
    page = Page(chrome, torn)
    assert page.run("return window.pwned") is None
    complaints = page.complaints()
    assert complaints and all("Content Security Policy" in line for line in complaints)


def test_nothing_in_the_file_asks_for_the_network(hostile: Judged, broken: Judged) -> None:
    for run in (hostile, broken):
        outside = re.sub(r'<script type="text/plain".*?</script>', "", run.page, flags=re.S)
        assert not re.findall(r'(?:src|href)="(?!#|data:,)[^"]*"', outside)
        assert "url(http" not in outside and "@import" not in outside


def test_markup_of_hostile_text_is_escaped_in_the_file(hostile: Judged) -> None:
    for text in HOSTILE[:5]:
        assert text not in hostile.page
    assert "\x00" not in hostile.page and "\u202e" not in hostile.page
