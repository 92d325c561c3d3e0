"""What the tests of the report share: runs made once, and a browser where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_runs import Judged, broken_run, healthy_run, hostile_run, large_run


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A run that fails: mtp2 loops, drafts badly and takes another kernel."""
    return broken_run(tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A run that passes."""
    return healthy_run(tmp_path_factory.mktemp("healthy"))


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A run whose texts try to act."""
    return hostile_run(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A run of 7 x 1,319 answers that all differ."""
    return large_run(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: EVALSUITE_TEST_ARTIFACTS, or a temporary folder."""
    named = os.environ.get("EVALSUITE_TEST_ARTIFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("artifacts")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name):
            return found
    pytest.skip(f"no {names[0]} on this machine: apt-get install chromium chromium-driver")


@pytest.fixture(scope="session")
def chrome() -> Iterator[object]:
    """A headless Chromium; skips where none is installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    browser = _program("chromium", "chromium-browser", "google-chrome", "chrome")
    driver = _program("chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        # Chromium's own sandbox does not start for root, as whom containers run tests.
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield made
    finally:
        made.quit()
