"""How a sample was drawn: one file per design and one line below, and the mechanics of drawing."""

from opacc_ray.designs.base import Design
from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.purposive import Purposive
from opacc_ray.designs.rao_hartley_cochran import RaoHartleyCochran
from opacc_ray.designs.replicates import Replicates
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.step_by_step import StepByStep
from opacc_ray.designs.stratified import Stratified

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

__all__ = ["DESIGNS", "Design"]
