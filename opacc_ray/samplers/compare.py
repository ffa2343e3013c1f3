"""Comparison of several models by the labels of one sample: the public function :func:`compare`."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.model_comparison import (
    SeveralModels,
    compare_by_design,
    compare_predicted,
    cut_to_predictions,
)
from opacc_ray.estimators.rounds import checked_rounds, common_pool
from opacc_ray.history import History
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.models import histories_of, listed, refuse_other_pools, views_of
from opacc_ray.samplers.neyman.regression import combine_by_regression, uses_regression
from opacc_ray.selection import Selection


def compare(
    selection: Selection | Sequence[Selection],
    outcomes: Sequence[Any],
    level: float = 0.95,
    *,
    pools: Iterable[Pool | View] | None = None,
    history: History | Sequence[History] | None = None,
    predictions: Sequence[ArrayLike] | None = None,
) -> SeveralModels:
    """Estimate the accuracy of each model, all differences, and the probability that each is the best.

    Parameters
    ----------
    selection : as for :func:`opacc_ray.estimate`: a selection, drawn for any of the models, or one per round
    outcomes : (models, n): a row per model; for rounds a list of these
    level : confidence level of each accuracy, and of all differences together
    pools : the pool of each model, with its features, of the same examples in the same order. For rounds drawn by
        `neyman` with ``combine="labels"``, all labels then predict the unlabelled outcomes
    history : data known before the first label, as given to select: one for all models or one for each
    predictions : (models, N) the prediction of each model for every example of the pool; a class has the same name or
        number for all models. Where two models agree, both are right or both are wrong, so their difference is at most
        the share of examples on which they disagree

    Returns
    -------
    SeveralModels
        Each difference is that of the two accuracies. Exception: `neyman` without pools, where accuracies use the
        predictions of the rounds, and differences the labels only.

    Raises
    ------
    LabelError
        There is no model, the outcomes do not fit the selection or the predictions, or rounds are missing.
    SpecError
        The number or size of pools or predictions is not that of the models and of the selection's pool.
    DataError
        A chosen example has another id in a pool.
    """
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    given = _rows(selections, [outcomes] if isinstance(selection, Selection) else outcomes)
    by_model = [checked_rounds(selections, [rows[m] for rows in given], level)[1] for m in range(len(given[0]))]
    predicted = None if predictions is None else _checked(predictions, len(by_model), common_pool(selections))
    views = None if pools is None else _views(pools, len(by_model), selections)
    if views is None or not uses_regression(selections):
        found = compare_by_design(selections, by_model, level)
    else:
        models = zip(views, by_model, histories_of(history, len(views)), strict=True)
        combined = [combine_by_regression(view, selections, own, known) for view, own, known in models]
        found = compare_predicted(selections, by_model, combined, level)
    return found if predicted is None else cut_to_predictions(found, selections, by_model, predicted)


def _views(pools: Iterable[Pool | View], num_models: int, selections: Sequence[Selection]) -> list[View]:
    """Return the pools of all models; raises SpecError or DataError if one is not the pool of the selections."""
    views, size = views_of(listed(pools)), common_pool(selections)
    if len(views) != num_models or views[0].size != size:
        raise SpecError(
            f"{len(views)} pools of {views[0].size} examples, for {num_models} models and a selection of {size} "
            "examples: give one pool per model, each the pool of the selection"
        )
    refuse_other_pools(views, selections)
    return views


def _checked(predictions: Sequence[ArrayLike], num_models: int, size: int) -> list[NDArray[Any]]:
    """Return the predictions of each model, (N,); raises SpecError unless each model has one for every example."""
    given = [np.asarray(own) for own in predictions]
    shapes = [own.shape for own in given]
    if shapes != [(size,)] * num_models:
        raise SpecError(
            f"predictions have the shapes {shapes}, for {num_models} models and a pool of {size} examples: give "
            "(N,) predictions for each model"
        )
    return given


def _rows(selections: Sequence[Selection], outcomes: Sequence[Any]) -> list[Any]:
    """Return the outcomes (models, n) of each round; raises LabelError unless all rounds have the same models."""
    table = next((rows for rows in (outcomes, *outcomes) if hasattr(rows, "keys")), None)
    if table is not None:
        raise LabelError(
            f"the outcomes have the type {type(table).__name__}; give a list with the outcomes of each model, in the "
            "order of the models"
        )
    given = list(outcomes)
    if len(given) != len(selections) or not given or not len(given[0]):
        raise LabelError(f"{len(selections)} rounds and outcomes of {len(given)}: give (models, n) for each round")
    nums = {len(rows) for rows in given}
    if len(nums) > 1:
        raise LabelError(f"the rounds have outcomes of {sorted(nums)} models; give a row per model in every round")
    return given
