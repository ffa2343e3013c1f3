"""A design from the JSON types of a saved selection, by its name."""

from difflib import get_close_matches
from typing import Any

from opacc_ray.designs import DESIGNS, Design
from opacc_ray.errors import DataError


def read_design(content: dict[str, Any], source: str) -> Design:
    """What ``Design.to_json`` gave, of any design.

    Raises
    ------
    DataError
        There is no such design, or a field is missing or cannot be: ``source``, field and value are named.
    """
    name = content.get("type") if isinstance(content, dict) else None
    if name not in DESIGNS:
        near = get_close_matches(str(name), DESIGNS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"this version knows {', '.join(DESIGNS)}"
        raise DataError(f"{source} has a design of type {name!r}; {hint}")
    return DESIGNS[name].from_json(content, source, read_design)
