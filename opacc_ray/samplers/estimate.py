"""Estimate the accuracy from the outcomes of a sample."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.intervals import Estimate, joined_reasons
from opacc_ray.estimators.plausibility import contradiction
from opacc_ray.estimators.prediction_powered import assisted_estimate
from opacc_ray.estimators.rounds import Outcome, checked_rounds
from opacc_ray.history import History
from opacc_ray.parts.content import content_of
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.models import histories_of, refuse_other_order, refuse_other_pools
from opacc_ray.samplers.neyman.regression import regression_estimate, uses_regression
from opacc_ray.selection import Selection


def estimate(
    selection: Selection | Sequence[Selection],
    outcome: Sequence[Any] | Outcome,
    level: float = 0.95,
    *,
    prediction: ArrayLike | None = None,
    pool: Pool | View | None = None,
    history: History | None = None,
) -> Estimate:
    """Estimate the accuracy on the pool of ``selection`` from outcomes (n,), or from a list with those of each round.

    Arguments and errors are those of :func:`opacc_ray.labelled.estimate`, which also accepts labels and adds the
    effective sample size. Without ``pool``, rounds are combined by their designs alone. With it, those of `neyman` with
    ``combine="labels"`` are combined by :mod:`opacc_ray.samplers.neyman.regression`.
    """
    selections, view = [selection] if isinstance(selection, Selection) else list(selection), None
    if prediction is not None:
        found = assisted_estimate(selection, outcome, prediction, level)
        content = content_of(view_of(Pool(confidence=prediction)))
        for own in selections:
            refuse_other_order(own, content, "the prediction")
        return found
    if pool is not None and selections:
        view, known = view_of(pool), histories_of(history, 1)[0]
        refuse_other_pools([view], selections)
    selections, outcomes = checked_rounds(selection, outcome, level)
    if view is not None and uses_regression(selections):
        found = regression_estimate(view, selections, outcomes, level, known)
    else:
        found = design_based_estimate(selections, outcomes, level)
    return replace(found, reason=joined_reasons((found.reason, contradiction(selections, outcomes))))
