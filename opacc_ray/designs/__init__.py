"""Sampling designs, one file per design and one line below, and the mechanics of drawing samples."""

from collections.abc import Mapping
from typing import Any

from opacc_ray.designs.design import Design
from opacc_ray.errors import DataError, meant
from opacc_ray.registry import Registry

__all__ = ["DESIGNS", "Design", "read_design"]

DESIGNS: Mapping[str, type[Design]] = Registry(
    "designs",
    {
        "simple random": f"{__name__}.simple_random:SimpleRandom",
        "stratified": f"{__name__}.simple_random:Stratified",
        "Hansen-Hurwitz": f"{__name__}.draw_probability:HansenHurwitz",
        "Rao-Hartley-Cochran": f"{__name__}.draw_probability:RaoHartleyCochran",
        "step by step": f"{__name__}.draw_probability:StepByStep",
        "inclusion probability": f"{__name__}.inclusion_probability:InclusionProbability",
        "grown pool": f"{__name__}.inclusion_probability:Grown",
        "purposive": f"{__name__}.simple_random:Purposive",
    },
)
"""The designs by the names that selections save; then those of extensions."""


def read_design(content: dict[str, Any], source: str) -> Design:
    """Restore any design from what its ``to_json`` returned.

    Raises
    ------
    DataError
        There is no such design, or a field is missing or not valid: the message names ``source``, field and value.
    """
    name = content.get("type") if isinstance(content, dict) else None
    if not isinstance(name, str) or name not in DESIGNS:
        hint = meant(name, DESIGNS, f"this version knows {', '.join(DESIGNS)}")
        raise DataError(f"{source} has a design of type {name!r}; {hint}")
    return DESIGNS[name].from_json(content, source)
