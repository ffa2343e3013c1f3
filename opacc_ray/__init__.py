"""Operational accuracy of deep networks from few labels.

``opacc_ray`` chooses which examples of an unlabelled operational pool to label and states the accuracy
of a model on the whole pool with a confidence interval. This package imports neither Ray nor torch nor
boto3: those load when a job runs.

>>> import opacc_ray as opacc
>>> pool = opacc.Pool(confidence=confidence)                               # (N,)
>>> selection = opacc.select(pool, method="css", budget=100, seed=0)       # label selection.index
>>> opacc.estimate(selection, outcome)                                     # outcome: (100,) of 0 and 1
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opacc_ray.errors import OpaccError
    from opacc_ray.estimators.accuracy_estimate import Estimate
    from opacc_ray.estimators.model_comparison import SeveralModels
    from opacc_ray.history import History
    from opacc_ray.pool import Pool
    from opacc_ray.samplers.compare import compare
    from opacc_ray.samplers.estimate import estimate
    from opacc_ray.samplers.select import select
    from opacc_ray.selection import Selection

__version__ = "0.2.0"
__all__ = [
    "Audit",
    "Estimate",
    "History",
    "OpaccError",
    "Pool",
    "Selection",
    "SeveralModels",
    "compare",
    "estimate",
    "select",
]

_HOME = {
    "Audit": "notebook",  # which is above rooms that import this module, so types are found there alone
    "Estimate": "estimators.accuracy_estimate",
    "History": "history",
    "OpaccError": "errors",
    "Pool": "pool",
    "Selection": "selection",
    "SeveralModels": "estimators.model_comparison",
    "compare": "samplers.compare",
    "estimate": "samplers.estimate",
    "select": "samplers.select",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'opacc_ray' has no attribute {name!r}")
    return getattr(import_module(f"opacc_ray.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
