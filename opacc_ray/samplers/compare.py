"""Several models compared by the labels of one sample: :func:`compare`, the way in for users."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.rounds import checked_rounds, common_pool
from opacc_ray.estimators.several import SeveralModels, compare_by_design, compare_predicted, cut_to_predictions
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
    """Accuracy of each model, all differences, and the probability that each is the best.

    Parameters
    ----------
    selection : as for :func:`opacc_ray.estimate`: a selection, whichever of the models it was drawn for, or one per
        round
    outcomes : (models, n): a row for each model; for rounds a list of such
    level : at which each accuracy holds; all differences hold together at it
    pools : the pool of each model, with its features, of the same examples in the same order: what is not labelled is
        predicted for each model by all labels, if the rounds are of `neyman` with ``combine="labels"``
    history : what was known before the first label, as the selection was given it, one for all models or one for each
    predictions : (models, N) what each model says of every example of the pool, a class by the same name or number for
        all models: where two say the same, both are right or both are wrong, so their difference is at most the share
        of examples on which they do not

    Returns
    -------
    SeveralModels
        Each difference is that of the two accuracies, but of `neyman` without pools: there accuracies use the
        predictions that rounds were drawn by, and differences the labels alone.

    Raises
    ------
    LabelError
        There is no model, the outcomes do not fit the selection, or the predictions; or rounds are missing.
    SpecError
        The pools, or the predictions, have another size than the pool that the selection was drawn from, or are not one
        for each model.
    DataError
        A pool calls a chosen example by another id.
    """
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    given = _rows(selections, [outcomes] if isinstance(selection, Selection) else outcomes)
    by_model = [checked_rounds(selections, [rows[m] for rows in given], level)[1] for m in range(len(given[0]))]
    said = None if predictions is None else _checked(predictions, len(by_model), common_pool(selections))
    views = None if pools is None else _views(pools, len(by_model), selections)
    if views is None or not uses_regression(selections):
        found = compare_by_design(selections, by_model, level)
    else:
        models = zip(views, by_model, histories_of(history, len(views)), strict=True)
        combined = [combine_by_regression(view, selections, own, known) for view, own, known in models]
        found = compare_predicted(selections, by_model, combined, level)
    return found if said is None else cut_to_predictions(found, selections, by_model, said)


def _views(pools: Iterable[Pool | View], num_models: int, selections: Sequence[Selection]) -> list[View]:
    """The pools of all models; raises SpecError or DataError unless each is the one that selections were drawn from."""
    views, size = views_of(listed(pools)), common_pool(selections)
    if len(views) != num_models or views[0].size != size:
        raise SpecError(
            f"{len(views)} pools of {views[0].size} examples, for {num_models} models and a selection of {size} "
            "examples: give the pool of each model that the selection was drawn from"
        )
    refuse_other_pools(views, selections)
    return views


def _checked(predictions: Sequence[ArrayLike], num_models: int, size: int) -> list[NDArray[Any]]:
    """The predictions of each model, (N,); raises SpecError unless each model has one for every example."""
    given = [np.asarray(own) for own in predictions]
    shapes = [own.shape for own in given]
    if shapes != [(size,)] * num_models:
        raise SpecError(
            f"predictions have the shapes {shapes}, for {num_models} models and a pool of {size} examples: give what "
            "each model says of every example, (N,) for each"
        )
    return given


def _rows(selections: Sequence[Selection], outcomes: Sequence[Any]) -> list[Any]:
    """The outcomes (models, n) of each round; raises LabelError unless every round has as many models, and one."""
    table = next((rows for rows in (outcomes, *outcomes) if hasattr(rows, "keys")), None)
    if table is not None:
        raise LabelError(
            f"the outcomes are of type {type(table).__name__}; give a list with the outcomes of each model, in the "
            "order of the models"
        )
    given = list(outcomes)
    if len(given) != len(selections) or not given or not len(given[0]):
        raise LabelError(f"{len(selections)} rounds and outcomes of {len(given)}: give (models, n) for each round")
    nums = {len(rows) for rows in given}
    if len(nums) > 1:
        raise LabelError(f"the rounds have outcomes of {sorted(nums)} models; give a row for each model in every round")
    return given
