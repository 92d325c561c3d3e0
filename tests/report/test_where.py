"""Where a failed run is likely to go wrong, in every report that a person reads."""

from __future__ import annotations

import io

import pytest
from pagedriver import Page
from report_runs import Judged
from rich.console import Console

from evalsuite.judge import read_verdict
from evalsuite.localise import FAMILIES, Localisation
from evalsuite.show import verdict_renderables


def place_of(run: Judged) -> Localisation:
    place = read_verdict(run.folder).localisation
    assert place is not None and place.places
    return place


def test_the_page_tells_the_family_and_leads_to_the_first_places(
    chrome: object, broken: Judged
) -> None:
    place = place_of(broken)
    page = Page(chrome, broken.folder / "report.html")
    assert page.text("#family").lower() == FAMILIES[place.family].lower()
    assert place.reason in page.text(".where")
    first = place.places[0]
    row = page.find(f".where tr[data-place={first.arm}]")
    assert str(first.token) in row.text and first.rows in row.text
    assert "not told" in row.text.lower() or str(first.position) in row.text
    row.find_element("css selector", "button").click()
    assert page.opened() == first.item
    assert page.complaints() == []


def test_markdown_tells_it_behind_the_reasons_and_before_the_arms(broken: Judged) -> None:
    place = place_of(broken)
    text = (broken.folder / "report.md").read_text(encoding="utf-8")
    likely = text.index(f"Likely **{place.name}** (family {place.family}")
    assert text.index("**degeneration**") < likely < text.index("| Arm |")
    assert f"at token {place.places[0].token}" in text


def test_the_terminal_has_two_lines_of_it(broken: Judged) -> None:
    place = place_of(broken)
    console = Console(width=500, record=True, file=io.StringIO())
    for shown in verdict_renderables(read_verdict(broken.folder)):
        console.print(shown)
    lines = console.export_text().splitlines()
    at = lines.index(f"likely {place.name} (family {place.family}): {place.reason}")
    assert lines[at + 1] == f"first, {place.places[0]}"


@pytest.mark.parametrize("file", ["report.html", "report.md"])
def test_a_healthy_run_has_none_of_it(healthy: Judged, file: str) -> None:
    text = (healthy.folder / file).read_text(encoding="utf-8")
    assert 'class="where"' not in text and "Likely **" not in text
