"""Estimate the accuracy of a model on unlabelled data from a few labels.

`opacc_ray` chooses which examples of an unlabelled pool to label, and states the accuracy of a model on the whole pool
with a confidence interval. Importing it loads neither Ray nor torch nor boto3: those load when a job runs.

>>> import opacc_ray as opacc
>>> pool, truth = opacc.load_example()
>>> selection = opacc.select(pool, budget=100)
>>> labels = {id: truth[id] for id in selection.ids}
>>> opacc.estimate(selection, labels=labels, pool=pool)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from opacc_ray._version import __version__ as __version__

if TYPE_CHECKING:
    from opacc_ray.errors import OpaccError
    from opacc_ray.estimation.design_numbers import estimate_ratio
    from opacc_ray.estimation.intervals import Estimate
    from opacc_ray.estimation.model_comparison import SeveralModels
    from opacc_ray.extensions.characterize.characterization import characterize
    from opacc_ray.extensions.demo.digits import load_example
    from opacc_ray.extensions.discovery import Discovery, discover
    from opacc_ray.extensions.suites.suites import make_suite, regress
    from opacc_ray.labelled import assess_judges, compare, estimate, select
    from opacc_ray.labels.given_labels import Labelled
    from opacc_ray.pool import History, Pool
    from opacc_ray.selection import Selection
    from opacc_ray.stored_audit import Audit

__all__ = [
    "Audit",
    "Discovery",
    "Estimate",
    "History",
    "Labelled",
    "OpaccError",
    "Pool",
    "Selection",
    "SeveralModels",
    "assess_judges",
    "characterize",
    "compare",
    "discover",
    "estimate",
    "estimate_ratio",
    "load_example",
    "make_suite",
    "regress",
    "select",
]

_HOME = {
    "Audit": "stored_audit",
    "Estimate": "estimation.intervals",
    "History": "pool",
    "Labelled": "labels.given_labels",
    "OpaccError": "errors",
    "Pool": "pool",
    "Selection": "selection",
    "SeveralModels": "estimation.model_comparison",
    "assess_judges": "labelled",
    "compare": "labelled",
    "estimate": "labelled",
    "estimate_ratio": "estimation.design_numbers",
    "select": "labelled",
}
"""Module of each public name of the core, which is imported when the name is first used; extensions register theirs."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"opacc_ray.{_HOME[name]}"), name)
    if name in __all__:
        return import_module("opacc_ray.registry").Registry("names")[name]
    raise AttributeError(f"module 'opacc_ray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
