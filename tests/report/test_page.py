"""The page in a real browser: opened, filtered, stepped through, looked at."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pagedriver import ESCAPE, Page
from report_runs import Judged

from evalsuite.judge import read_verdict


@pytest.fixture
def failing(chrome: object, broken: Judged) -> Page:
    return Page(chrome, broken.folder / "report.html")


def test_the_figures_in_the_page_are_those_of_the_verdict(failing: Page, broken: Judged) -> None:
    verdict = json.loads((broken.folder / "verdict.json").read_text())
    assert failing.text("#verdict") == verdict["verdict"] == "fail"
    for arm in verdict["arms"]:
        row = f"tr[data-arm='{arm['arm']}'] "
        cell = failing.find(row + "[data-column=accuracy]")
        assert float(cell.get_attribute("data-accuracy")) == arm["accuracy"]
        assert f"{100 * arm['accuracy']:.2f}%" in cell.text
        if arm["ratio"] is not None:
            assert f"{arm['ratio']:.2f} ×" in failing.text(row + "[data-column=wall]")
        if arm["accepted_length"] is not None:
            shown = failing.text(row + "[data-column=accepted]")
            assert f"{arm['accepted_length']:.2f}" in shown
    for test in verdict["tests"]:
        column = {"baseline": "baseline", "eager": "eager"}.get(test["against"])
        if column and test["arm"] != "mtp*":
            cell = failing.find(f"tr[data-arm='{test['arm']}'] [data-column={column}]")
            assert float(cell.get_attribute("data-drop")) == test["drop"]
    for flips in verdict["flips"]:
        cell = failing.find(f"tr[data-arm='{flips['arm']}'] [data-column=flips]")
        assert f"{len(flips['lost'])} lost" in cell.text
    for check, status in verdict["checks"].items():
        assert status in failing.text(f"#check-{check} summary .badge")
    assert failing.complaints() == []


def test_cells_have_the_colour_of_their_check(failing: Page) -> None:
    def status(arm: str, column: str) -> str:
        return failing.find(f"tr[data-arm={arm}] [data-column={column}]").get_attribute("class")

    assert status("mtp2", "route") == status("mtp2", "accepted") == "fail"
    assert status("mtp2", "outcomes") == status("mtp2", "equality") == "fail"
    assert status("mtp3", "route") == status("mtp3", "outcomes") == "pass"


def test_the_page_opens_at_the_first_degenerate_answer(failing: Page, broken: Judged) -> None:
    found = next(f for f in read_verdict(broken.folder).findings if f.check == "degeneration")
    assert failing.opened() == found.figures["item"]
    assert "mtp2: degenerate" in failing.text("#detail .side:nth-child(2) option:checked")
    assert failing.run("return document.querySelectorAll('#detail .degenerate').length") > 50


def test_flips_are_stepped_through_with_the_keyboard(failing: Page, broken: Judged) -> None:
    lost = next(f for f in read_verdict(broken.folder).flips if f.arm == "mtp2").lost
    failing.choose("kind", "lost")
    assert failing.shown() == len(lost)
    failing.press(ESCAPE)
    failing.run("document.activeElement.blur()")
    failing.press("j")
    failing.press(*"k" * len(lost))
    seen = [failing.opened()]
    for _ in lost[1:]:
        failing.press("j")
        seen.append(failing.opened())
    assert seen == lost
    failing.choose("kind", "")
    failing.run("document.activeElement.blur()")
    failing.press(*"k" * 60, "f")
    assert failing.opened() in lost
    first = failing.opened()
    failing.press("f")
    assert failing.opened() in lost and failing.opened() != first
    failing.press("F")
    assert failing.opened() == first


def test_filters_join_arm_outcome_check_and_text(failing: Page, broken: Judged) -> None:
    verdict = read_verdict(broken.folder)
    degenerate = next(a for a in verdict.arms if a.arm == "mtp2").outcomes["degenerate"]
    failing.choose("outcome", "degenerate")
    assert failing.shown() == degenerate
    failing.choose("arm", "mtp1")
    assert failing.shown() == 0
    failing.choose("arm", "mtp2")
    assert failing.shown() == degenerate
    failing.choose("outcome", "")
    failing.choose("check", "degeneration")
    named = {i for f in verdict.findings if f.check == "degeneration" for i in f.examples}
    assert failing.shown() == len(named)
    failing.choose("check", "")
    failing.choose("arm", "")
    failing.find("#f-text").send_keys("Shells")
    assert 0 < failing.shown() < 60


def test_the_first_difference_is_marked_with_its_margins(failing: Page) -> None:
    assert "First difference at token 1." in failing.text("#detail .difference")
    assert "eager 2.5, mtp2 2" in failing.text("#detail .difference")
    marks = failing.driver.find_elements("css selector", "#detail .first-difference")
    assert len(marks) == 2 and all(mark.text.strip() for mark in marks)


def test_the_baselines_answers_can_be_put_beside(failing: Page) -> None:
    failing.run(
        "const s = document.querySelector('#detail select');"
        "s.value = [...s.options].find((o) => o.text.startsWith('mtp2, baseline')).value;"
        "s.dispatchEvent(new Event('change'))"
    )
    assert "correct; 2 of 2 accepted answers are so" in failing.text("#detail .side .note")


def test_a_finding_leads_to_its_item(failing: Page, broken: Judged) -> None:
    link = failing.find("#check-equality .examples button:nth-of-type(2)")
    wanted = link.get_attribute("data-item")
    link.click()
    assert failing.opened() == wanted


def test_the_theme_switches(failing: Page) -> None:
    def page() -> str:
        return failing.run("return getComputedStyle(document.body).backgroundColor")

    before = page()
    failing.find("#theme").click()
    dark = page()
    failing.press("t")
    assert before != dark and page() == before


@pytest.mark.parametrize("name", ["broken", "healthy", "hostile"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_nothing_is_wider_than_the_window(
    chrome: object,
    artifacts: Path,
    request: pytest.FixtureRequest,
    name: str,
    width: int,
    height: int,
) -> None:
    page = Page(chrome, request.getfixturevalue(name).folder / "report.html", width, height)
    assert page.run("return document.documentElement.scrollWidth") <= width
    page.screenshot(artifacts / f"report-{name}-{width}.png")
    page.find("#theme").click()
    page.screenshot(artifacts / f"report-{name}-{width}-dark.png")
    assert page.complaints() == []


def test_every_figure_is_drawn_or_says_why_not(chrome: object, healthy: Judged) -> None:
    page = Page(chrome, healthy.folder / "report.html")
    for figure in page.driver.find_elements("css selector", ".figure"):
        drawn = figure.find_elements("css selector", "svg[role=img]")
        assert drawn or re.match("missing: .+", figure.find_element("css selector", ".gone").text)
        if drawn:
            assert drawn[0].size["height"] > 150
    assert "no answer parts from eager's" in page.text("#fig-divergence")


def test_it_prints_with_its_answers_and_without_its_controls(failing: Page) -> None:
    failing.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert not failing.find(".filters").is_displayed()
        assert failing.find("#detail").is_displayed()
    finally:
        failing.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
