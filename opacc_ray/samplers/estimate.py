"""Accuracy from a labelled sample: :func:`estimate`, the way in for users."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import ArrayLike

from opacc_ray.estimators.accuracy_estimate import Estimate, Outcome, joined_reasons
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.plausibility import contradiction
from opacc_ray.estimators.prediction_powered import assisted_estimate
from opacc_ray.estimators.rounds import checked_rounds
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
    """Accuracy on the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`opacc_ray.select` returned, or ``Selection.load`` of what it saved; or a list of them, one
        per round
    outcome : (n,) 1 correct, 0 misprediction, or a score in [0, 1]; aligned with ``selection.index``; for rounds a list
    level : confidence level of the interval, in (0, 1)
    prediction : (N,) in [0, 1] of every example of the pool, in its order: the outcome to expect, such as the model's
        confidence. As far as it is right, it saves labels; see :mod:`opacc_ray.estimators.prediction_powered`
    pool : the pool with its features, from which `neyman` with ``combine="labels"`` predicts what is not labelled by
        all labels (:mod:`opacc_ray.samplers.neyman.regression`). Without it each round is estimated by itself, which is
        exactly unbiased and less precise. Other methods have no use for it
    history : what was known before the first label, as the selection was given it; only with ``pool``

    Returns
    -------
    Estimate
        Value and interval of the selection's own design; for rounds, of all of them together. Its ``reason`` says if
        the labels contradict the confidence (:mod:`opacc_ray.estimators.plausibility`).

    Raises
    ------
    LabelError
        If the outcomes are not n numbers in [0, 1], or rounds are missing.
    DataError
        If the predictions are not N numbers in [0, 1], the pool calls a chosen example by another id, or a pool or
        prediction without ids is that of the selection in another order.
    SpecError
        If there are predictions for a selection by ``neyman``, which has its own, or the pool has another size than the
        one that it was drawn from.
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
