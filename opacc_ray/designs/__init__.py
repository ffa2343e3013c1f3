"""Sampling designs, one file per design and one line below, and the mechanics of drawing samples."""

from collections.abc import Mapping

from opacc_ray.designs.design import Design
from opacc_ray.registry import Registry

__all__ = ["DESIGNS", "Design"]

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
