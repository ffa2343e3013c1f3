"""Sampling designs, one file per design and one line below, and the mechanics of drawing samples."""

from opacc_ray.designs import (  # noqa: F401 each registers its design
    grown,
    hansen_hurwitz,
    inclusion_probability,
    purposive,
    rao_hartley_cochran,
    replicates,
    simple_random,
    step_by_step,
    stratified,
)
from opacc_ray.designs.design import DESIGNS, Design, read_design

__all__ = ["DESIGNS", "Design", "read_design"]
