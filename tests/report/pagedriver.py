"""A page of the report in a real browser, as a reader uses it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

READY = "return document.documentElement.dataset.ready === 'yes'"


class Page:
    """One opened report; `close` fails on anything that the browser complained of."""

    def __init__(self, driver: Any, file: Path, width: int = 1280, height: int = 800) -> None:
        self.driver = driver
        self.size(width, height)
        driver.get_log("browser")
        driver.get(file.resolve().as_uri())
        WebDriverWait(driver, 60).until(lambda d: d.execute_script(READY))

    def size(self, width: int, height: int) -> None:
        """Set the window's inner size in pixels."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
        )

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a script in the page returns."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> WebElement:
        """Return the first element of a CSS selector."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """Return the text of an element, in sight or not."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def choose(self, name: str, value: str) -> None:
        """Set a filter."""
        Select(self.find(f"#f-{name}")).select_by_value(value)

    def press(self, *keys: str) -> None:
        """Press keys on the page."""
        for key in keys:
            self.find("body").send_keys(key)

    def shown(self) -> int:
        """Return how many items the filter lets through."""
        return int(self.text("#count").split()[0].replace(",", ""))

    def opened(self) -> str:
        """Return the id of the item that is open."""
        return str(self.run("return document.getElementById('detail').dataset.item"))

    def screenshot(self, path: Path) -> None:
        """Save the whole page as a picture."""
        width = self.run("return innerWidth")
        self.size(width, min(self.run("return document.documentElement.scrollHeight"), 16_000))
        time.sleep(0.2)
        self.driver.save_screenshot(str(path))

    def complaints(self) -> list[str]:
        """Return what the browser's console holds since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


ESCAPE = Keys.ESCAPE
