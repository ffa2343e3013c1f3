"""What judges save: labels and money with and without them."""

import math
from typing import NamedTuple

from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.history import History
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Previous
from opacc_ray.samplers.neyman.forecast import worth_of_judges


class Prices(NamedTuple):
    """What one label of a person and one call of a judge cost, in any currency."""

    label: float | None = None
    call: float = 0.0

    def of(self, labels: int, calls: int) -> float | None:
        """Return the cost of labels and calls; None where the price of a label is not given."""
        return None if self.label is None else labels * self.label + calls * self.call


class Way(Part):
    """One way to the goal: some calls of judges, and some labels."""

    calls: int = Field(ge=0, description="calls of judges: values of their columns")
    labels: int = Field(ge=1, description="total number of labels, as forecast")
    cost: float | None = Field(default=None, ge=0, description="cost of both; null without prices")


class JudgeBudget(Part):
    """What the judges save, as forecast."""

    present: Way = Field(description="with the judges as they are")
    without: Way = Field(description="without judges")
    complete: Way | None = Field(default=None, description="if every judge had judged every example; null if they have")


def judge_budget(view: View, labels: int, previous: Previous, history: History, prices: Prices) -> JudgeBudget | None:
    """Return the ways to a goal that takes ``labels`` with the judges of a pool; None without judges."""
    found = worth_of_judges(view, previous, history)
    if found is None:
        return None

    def way(calls: int, ratio: float) -> Way:
        num = min(max(math.ceil(labels * ratio), 1), view.size)
        return Way(calls=calls, labels=num, cost=prices.of(num, calls))

    every = view.size * len(view.judges() | history.scores())
    complete = None if found.complete is None else way(every, found.complete)
    return JudgeBudget(present=way(found.calls, 1.0), without=way(0, found.without), complete=complete)
