"""Accessibility of the page, by axe-core in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from pagedriver import Page

AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
RUN = """
const done = arguments[arguments.length - 1];
const told = (one) => [one.impact, one.id, one.nodes.slice(0, 3).map((n) => n.html.slice(0, 160))];
axe.run(document, {resultTypes: ['violations']})
  .then((found) => done(found.violations.map(told)), (problem) => done([[String(problem)]]));
"""


@pytest.mark.skipif(
    not AXE.exists(), reason="axe-core is not installed: npm --prefix tests/report install"
)
@pytest.mark.parametrize("name", ["broken", "healthy", "hostile"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_serious_fault(
    chrome: object, request: pytest.FixtureRequest, name: str, width: int, dark: bool
) -> None:
    page = Page(chrome, request.getfixturevalue(name).folder / "report.html", width, 844)
    page.run(f"document.documentElement.dataset.theme = '{'dark' if dark else 'light'}'")
    # The protocol's own channel: the page's policy lets no further script in.
    page.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
    found = page.driver.execute_async_script(RUN)
    grave = [one for one in found if one[0] not in ("minor", "moderate")]
    assert grave == []
