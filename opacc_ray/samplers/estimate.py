"""Estimate the accuracy of a model, or compare several, from outcomes; pools are checked to be the selections' own."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, LabelError, SpecError, counted, shown
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.estimators.model_comparison import (
    SeveralModels,
    compare_by_design,
    compare_predicted,
    cut_to_predictions,
)
from opacc_ray.estimators.plausibility import contradiction
from opacc_ray.estimators.population import PoolAsSample, SampleOf, cluster_deviations, pool_as_sample
from opacc_ray.estimators.prediction_powered import assisted_estimate
from opacc_ray.estimators.ratios import Ratio, count_of
from opacc_ray.estimators.rounds import Outcome, check_level, checked_rounds, common_pool, is_binary, linear_estimator
from opacc_ray.history import History, histories_of
from opacc_ray.parts.content import Content, content_of, in_other_order
from opacc_ray.parts.view import View, view_of, views_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.metric_estimates import Sample, forecast_of
from opacc_ray.samplers.neyman.regression import combine_by_regression, regression_estimate, uses_regression
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


def represent(
    asked: SampleOf, found: Estimate, sample: Sample, clusters: NDArray[np.integer] | None, view: View | None
) -> PoolAsSample:
    """Return how well the pool of ``sample``, with the accuracy ``found``, represents its population.

    ``clusters`` (N,) numbers them from 0, if they were drawn. Raises SpecError as
    :func:`opacc_ray.estimators.population.pool_as_sample`.
    """
    selections, failure = sample.selections, 1 - np.concatenate(sample.outcomes)
    size, value, weight = selections[0].pool_size, 1 - found.value, linear_estimator(selections).weights
    spread = max(value * (1 - value), 0.0)
    if not is_binary(failure):
        spread = min(spread, float(weight @ (failure - value) ** 2) / float(weight.sum()))
    if clusters is None:
        return pool_as_sample(asked, found, size, spread, None)
    labels = np.concatenate([part.index for part in selections]), weight, failure
    forecast = forecast_of(sample, view, size)
    deviations = cluster_deviations(clusters, int(clusters.max()) + 1, forecast, labels, value)
    return pool_as_sample(asked, found, size, spread, deviations)


def _views(pools: Iterable[Pool | View], num_models: int, selections: Sequence[Selection]) -> list[View]:
    """Return the pools of all models; raises SpecError or DataError if one is not the pool of the selections."""
    views, size = views_of(pools), common_pool(selections)
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


def refuse_other_pools(views: Sequence[View], selections: Sequence[Selection]) -> None:
    """Refuse pools other than the one that the selections were drawn from.

    A pool without ids is compared by its size, and by a digest of its columns if the selection has one.
    Raises SpecError for another number of examples, DataError for another id of a chosen example or another order.
    """
    for number, view in enumerate(views, start=1):
        pool = "the pool" if len(views) == 1 else f"pool {number}"
        content = content_of(view) if any(selection.contents for selection in selections) else {}
        for selection in selections:
            if selection.pool_size != view.size:
                raise SpecError(
                    f"{pool} has {view.size} examples, and the selection was drawn from {selection.pool_size}: "
                    "give the pool of the selection"
                )
            if view.named:
                places = selection.index
                refuse_other_ids(places.tolist(), selection.ids, "the selection", view.identify(places), pool)
            refuse_other_order(selection, content, pool)


def refuse_other_order(selection: Selection, content: Content, pool: str) -> None:
    """Raise DataError if a pool has the values of the selection's pool in another order."""
    moved = [name for own in selection.contents for name in in_other_order(content, own)]
    is_one = any(own.keys() & content.keys() and own | content == content | own for own in selection.contents)
    if moved and not is_one:
        raise DataError(
            f"{pool} has the same values of {moved[0]} as the pool of the selection, but in another order: give the "
            "examples in the order used in select, or give both pools ids: Pool(ids=...)"
        )


def refuse_other_ids(places: Sequence[int], own: Sequence[str], here: str, others: Sequence[str], there: str) -> None:
    """Raise DataError if the ids of the examples at ``places`` of a pool differ between ``here`` and ``there``."""
    for place, name, other in zip(places, own, others, strict=True):
        if name != other:
            raise DataError(
                f"example {place} is {name!r} in {here} and {other!r} in {there}; give the same examples, with the "
                "same ids in the same order"
            )


Counts = Mapping[str, Mapping[str, float]]


def estimate_ratio(
    selection: Selection | Sequence[Selection], counts: Counts | str | Path, ratio: str, level: float = 0.95
) -> Estimate:
    """Estimate a ratio of two totals over the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`opacc_ray.select` returned; for several rounds a list
    counts : id -> name -> number, or the path of a CSV file with the column ``id`` and one for each name
    ratio : two sums of names, such as "tp / (tp + fn)", "2 tp / (2 tp + fp + fn)" or "edits / words"
    level : confidence level of the interval, between 0 and 1

    Returns
    -------
    Estimate
        ``n`` counts the labelled examples. Zero over zero counts nothing. The interval does not allow for rare examples
        with much larger counts than others, none of which has a label: with n labels, a kind of less than 3.7/n of the
        pool.

    Raises
    ------
    LabelError
        Counts of an example are missing, negative or not finite, or nothing was counted below the line.
    SpecError
        ``ratio`` is no ratio of two sums.
    """
    check_level(level)
    asked = Ratio.parse(ratio)
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    ids = [name for part in selections for name in part.ids]
    known = _read(counts) if isinstance(counts, str | Path) else counts
    missing = [name for name in ids if name not in known]
    if missing:
        raise LabelError(f"{counted(len(missing), 'chosen example')} without counts, the first {shown(missing[0])}")
    by_name = {name: np.array([count_of(known[own], name, own) for own in ids]) for name in asked.names}
    if not asked.sides(by_name)[1].any():
        raise LabelError("all counts below the line are 0, so there is nothing to divide by; label more examples")
    return asked.estimate(linear_estimator(selections), by_name, len(set(ids)), level)


def _read(path: str | Path) -> Counts:
    """Read a CSV file; raises LabelError without ids, or with two rows of one."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and "id" not in rows[0]:
        raise LabelError(f"{path} has no column id; it has {', '.join(rows[0])}")
    found: dict[str, Any] = {row.pop("id"): row for row in rows}
    if len(found) < len(rows):
        raise LabelError(f"{path} has two rows with the same id; give one for each example")
    return found
