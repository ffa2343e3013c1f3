"""Folders that are prepared once, and restored for each test at the same place: the URIs in them are absolute."""

import shutil
from pathlib import Path


class Restored:
    """A folder with states that are kept by name."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True)

    def keep(self, state: str) -> None:
        """Keep the folder as it is now."""
        shutil.copytree(self.home, f"{self.home}-{state}")

    def restore(self, state: str) -> Path:
        """Return the folder as it was when its state was kept."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(f"{self.home}-{state}", self.home)
        return self.home
