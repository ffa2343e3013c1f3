"""The goal of a spec: the least accuracy, mean score or other metric that a model must have."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from opacc_ray.errors import SpecError
from opacc_ray.estimators.metrics import ACCURACY, parse_metric
from opacc_ray.estimators.scores import SCORES

Share = Annotated[float, Field(gt=0, lt=1)]


class Least(NamedTuple):
    """What a model must reach, and the number that it is about."""

    share: float
    metric: str = ACCURACY

    @classmethod
    def of(cls, goal: "float | Mapping[str, float]") -> "Least":
        """Return a goal as a spec has it: a share, or a metric with one."""
        if not isinstance(goal, Mapping):
            return cls(goal)
        [(metric, share)] = goal.items()
        return cls(share, metric)

    @classmethod
    def parse(cls, text: str) -> "Least":
        """Read ``0.9``, ``90 %`` or ``recall@defect 0.9``; raises SpecError for anything else."""
        found = re.fullmatch(r"\s*(?:(\S.*?)\s+)?(\d*\.?\d+\s*%?)\s*", str(text))
        try:
            share = float(_share_of(found[2] if "%" in found[2] else float(found[2]))) if found else 0.0
            name = found[1] if found else None
            if not 0 < share < 1:
                raise ValueError("give a share between 0 and 1, such as 0.9 or 'recall@defect 0.9'")
            return cls.of(share if name is None else _goal_of({name: share}))
        except ValueError as error:
            raise SpecError(f"goal {text!r}: {error}") from None


def _goal_of(value: Any) -> Any:
    """Return a goal as it is kept: a share, or a metric with one; raises ValueError."""
    if not isinstance(value, dict):
        return _share_of(value)
    if len(value) != 1:
        raise ValueError(f"it names {len(value)} numbers; give one, such as {{recall@defect: 90 %}}")
    [(name, share)] = value.items()
    metric = parse_metric(str(name))
    if metric.name in SCORES:
        raise ValueError(f"{name} is best at 0, and a goal is the least value of a number; choose another one")
    return _share_of(share) if metric.name == ACCURACY else {str(metric): _share_of(share)}


def _share_of(value: Any) -> Any:
    """Return the share that a text in percent means: ``85 %`` -> 0.85; other values stay."""
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value) if isinstance(value, str) else None
    if not isinstance(value, bool) and isinstance(value, int | float) and 1 < value <= 100:
        raise ValueError(f"a goal is a share: write {value / 100:g} or {value:g} %")
    return float(percent[1]) / 100 if percent else value


Goal = Annotated[Share | dict[str, Share], BeforeValidator(_goal_of)]
"""The value of ``goal``."""
