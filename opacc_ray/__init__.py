"""Estimate the accuracy of a model on unlabelled data from a few labels.

`opacc_ray` chooses which examples of an unlabelled pool to label, and states the accuracy of a model on the whole pool
with a confidence interval. Importing it loads neither Ray nor torch nor boto3: those load when a job runs.

>>> import opacc_ray as opacc
>>> pool, truth = opacc.load_example()
>>> selection = opacc.select(pool, budget=100)
>>> labels = {id: truth[id] for id in selection.ids}
>>> opacc.estimate(selection, labels, pool=pool)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opacc_ray.audit.regress import regress
    from opacc_ray.demo.example import load_example
    from opacc_ray.errors import OpaccError
    from opacc_ray.estimators.accuracy_estimate import Estimate
    from opacc_ray.estimators.model_comparison import SeveralModels
    from opacc_ray.history import History
    from opacc_ray.labelled import assess_judges, compare, discover, estimate, select
    from opacc_ray.labels.given_labels import outcomes
    from opacc_ray.notebook import Audit
    from opacc_ray.pool import Pool
    from opacc_ray.report.characterized import characterize
    from opacc_ray.samplers.discovery import Discovery
    from opacc_ray.samplers.estimate import estimate_ratio
    from opacc_ray.selection import Selection

__version__ = "0.2.0"
__all__ = [
    "Audit",
    "Discovery",
    "Estimate",
    "History",
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
    "outcomes",
    "regress",
    "select",
]

_HOME = {
    "Audit": "notebook",
    "Discovery": "samplers.discovery",
    "Estimate": "estimators.accuracy_estimate",
    "History": "history",
    "OpaccError": "errors",
    "Pool": "pool",
    "Selection": "selection",
    "SeveralModels": "estimators.model_comparison",
    "assess_judges": "labelled",
    "characterize": "report.characterized",
    "compare": "labelled",
    "discover": "labelled",
    "estimate": "labelled",
    "estimate_ratio": "samplers.estimate",
    "load_example": "demo.example",
    "outcomes": "labels.given_labels",
    "regress": "audit.regress",
    "select": "labelled",
}
"""Module of each public name, relative to this package; it is imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'opacc_ray' has no attribute {name!r}")
    return getattr(import_module(f"opacc_ray.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
