"""A full run of seven arms over 1,319 items: size of the file, first paint, filtering."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pagedriver import Page
from report_runs import Judged

PAINT = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
FILTER = """
const done = arguments[arguments.length - 1];
const select = document.getElementById(arguments[0]);
const began = performance.now();
select.value = arguments[1];
select.dispatchEvent(new Event('change'));
requestAnimationFrame(() => setTimeout(() => done(performance.now() - began), 0));
"""
TYPE = FILTER.replace("'change'", "'input'")


@pytest.fixture(scope="module")
def page(chrome: object, large: Judged) -> Page:
    return Page(chrome, large.folder / "report.html")


@pytest.mark.timeout(600)
def test_the_file_holds_every_answer_in_six_megabytes(large: Judged) -> None:
    size = (large.folder / "report.html").stat().st_size
    assert 1_000_000 < size <= 6_000_000
    assert "This run is large" not in large.page


def best(measure: Callable[[], float], limit: float, tries: int = 8) -> float:
    """Return the first time within `limit`, or the best: other work on the machine is not ours."""
    times: list[float] = []
    while len(times) < tries and (not times or min(times) > limit):
        times.append(measure())
    print(f"{min(times):.0f} ms of {limit:.0f}")
    return min(times)


def test_the_first_paint_comes_within_a_second(chrome: object, large: Judged) -> None:
    file = large.folder / "report.html"
    assert best(lambda: Page(chrome, file).run(PAINT), 1000) <= 1000


@pytest.mark.parametrize(
    ("script", "name", "value"),
    [
        (FILTER, "f-kind", "differ"),
        (FILTER, "f-kind", "texts"),
        (FILTER, "f-outcome", "wrong"),
        (TYPE, "f-text", "coins each."),
    ],
)
def test_a_filter_answers_within_200_ms(page: Page, script: str, name: str, value: str) -> None:
    def measure() -> float:
        page.driver.execute_async_script(script, name, "")
        assert page.shown() == 1319
        return page.driver.execute_async_script(script, name, value)

    assert best(measure, 200) <= 200
    assert 0 < page.shown() < 1319 or value == "texts"
    page.driver.execute_async_script(script, name, "")


def test_only_the_rows_in_sight_exist(page: Page) -> None:
    assert page.run("return document.querySelectorAll('.row').length") < 40
    page.run("document.getElementById('list').scrollTop = 30000")
    page.driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
    places = page.run("return [...document.querySelectorAll('.row')].map((r) => +r.dataset.at)")
    assert min(places) > 600 and len(places) < 40
