"""The one browser that opens pages in the tests."""

import shutil

import pytest


def browser_path() -> str | None:
    """The browser of this machine, if it has one: Debian's package chromium, or Chrome."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


needs_browser = pytest.mark.skipif(browser_path() is None, reason="no browser is installed: apt-get install chromium")
