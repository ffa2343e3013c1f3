"""Sampling designs, one file per design and one line below, and the mechanics of drawing samples."""

from difflib import get_close_matches
from typing import Any

from opacc_ray.designs.design import Design
from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.purposive import Purposive
from opacc_ray.designs.rao_hartley_cochran import RaoHartleyCochran
from opacc_ray.designs.replicates import Replicates
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.step_by_step import StepByStep
from opacc_ray.designs.stratified import Stratified
from opacc_ray.errors import DataError

DESIGNS: dict[str, type[Design]] = {
    kind.name: kind
    for kind in (
        SimpleRandom,
        Stratified,
        HansenHurwitz,
        RaoHartleyCochran,
        StepByStep,
        InclusionProbability,
        Purposive,
        Replicates,
    )
}


def read_design(content: dict[str, Any], source: str) -> Design:
    """Restore any design from what its ``to_json`` returned.

    Raises
    ------
    DataError
        There is no such design, or a field is missing or not valid: the message names ``source``, field and value.
    """
    name = content.get("type") if isinstance(content, dict) else None
    if name not in DESIGNS:
        near = get_close_matches(str(name), DESIGNS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"this version knows {', '.join(DESIGNS)}"
        raise DataError(f"{source} has a design of type {name!r}; {hint}")
    return DESIGNS[name].from_json(content, source, read_design)


__all__ = ["DESIGNS", "Design", "read_design"]
