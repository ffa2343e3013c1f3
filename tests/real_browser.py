"""The browser that opens pages in the tests, and checks that hold for every page.

Without a browser its tests are skipped; with OPACC_BROWSER=required in the environment they fail.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from waiting import LONG

_LEFT_OUT = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup"),  # pages of the address bar, in a process for each window
    *("HttpsUpgrades", "PaintHolding", "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch", "MediaRouter"),
)
"""Features of the browser. Playwright leaves out all but the first two by the same option, the last of which counts."""

SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
"""Width and height of windows, in pixels."""


NO_BROWSER = "no browser is installed: run `apt-get install chromium` or `.venv/bin/playwright install chromium`"


def browser_path() -> str | None:
    """The browser of this machine, if it has one: Debian's package chromium, Chrome, or Playwright's own."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    own = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    found = [shutil.which(name) for name in names] + [str(path) for path in own.glob("chromium-*/chrome-linux*/chrome")]
    return next(filter(None, found), None)


def launched(chromium: Any) -> Any:
    """Start the browser."""
    left_out = f"--disable-features={','.join(_LEFT_OUT)}"
    return chromium.launch(executable_path=browser_path(), args=["--no-sandbox", left_out], timeout=1000 * LONG)


IS_REQUIRED = os.environ.get("OPACC_BROWSER") == "required"
needs_browser = pytest.mark.skipif(browser_path() is None and not IS_REQUIRED, reason=NO_BROWSER)


class Opened(NamedTuple):
    """A page that is open, the addresses that it asked for, and what it wrote to the console."""

    page: Any
    asked: list[str]
    faults: list[str]


@contextmanager
def opened(browser: Any, address: str, size: str, scheme: str) -> Iterator[Opened]:
    """Open a page in a window of a size, for a reader of dark or light colours."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    found = Opened(context.new_page(), [], [])
    found.page.on("request", lambda request: found.asked.append(request.url))
    found.page.on("console", lambda message: found.faults.append(message.text))
    found.page.set_default_timeout(1000 * LONG)
    found.page.goto(address)
    yield found
    context.close()


def assert_fits(page: Any, size: str) -> None:
    """Nothing is wider than the window, and the figures that show are those for its width."""
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    shown = page.locator("svg:visible").evaluate_all("all => all.map(one => one.getAttribute('aria-labelledby'))")
    other = "n" if size == "desktop" else "w"
    assert other not in {name.split()[0].rsplit("-", 2)[1] for name in shown}


def assert_accessible(page: Any, least: int) -> set[str]:
    """Axe finds no violation, and more than ``least`` rules that the page obeys; returns these rules."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response
    assert [(item["id"], item["impact"], item["nodes"][0]["html"]) for item in found["violations"]] == []
    assert len(found["passes"]) > least
    return {item["id"] for item in found["passes"]}
