"""A page in a browser without a window, from disk; tests that need it are skipped where there is none."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = (shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver"))
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1200",
)
PATIENCE = 60.0  # seconds


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A browser with its profile in `folder`; skips the test where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def until(condition: Any) -> Any:
    """What `condition()` gives once it is true."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)
    return value


def show(driver: Any, page: Path, view: str = "") -> None:
    """Opens the page and waits until everything is drawn."""
    driver.get("about:blank")
    driver.get(f"{page.as_uri()}{view}")
    until(lambda: driver.execute_script("return document.body.dataset.ready !== undefined"))
