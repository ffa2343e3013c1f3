"""Lets Python, and each Python that it starts, find no package of an extra but those of the labelling page."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from opacc_ray.registry import EXTRAS

BLOCKED = {module for module, extra in EXTRAS.items() if extra != "page"} | {"tqdm"}


class Blocked(MetaPathFinder):
    """Finds nothing, and lets no other finder find it."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
