"""The registry of sampling methods: a method is a module of this package and one line below.

Each module offers the names of :class:`Sampler`. ``CONTRIBUTING.md`` walks through adding one.
"""

from opacc_ray.samplers import ces, coverage, css, deepest, deepreduce, gbs, neyman, rhcs, srs, ssrs, sups, two_ups
from opacc_ray.samplers.base import Draw, Previous, Sampler, Task

METHODS: dict[str, Sampler] = {
    "srs": srs,
    "css": css,
    "ces": ces,
    "deepest": deepest,
    "neyman": neyman,
    "deepreduce": deepreduce,
    "sups": sups,
    "rhcs": rhcs,
    "ssrs": ssrs,
    "gbs": gbs,
    "two_ups": two_ups,
    "coverage": coverage,
}

__all__ = ["METHODS", "Draw", "Previous", "Sampler", "Task"]
