"""Estimate any number of a pool from labels, or compare several models: what joins all the parts of the engine."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import LabelError, SpecError, counted, shown
from opacc_ray.estimation.accuracy import PoolFailures, accuracy_of
from opacc_ray.estimation.adjustments import PoolAsSample, SampleOf, cluster_deviations, pool_as_sample
from opacc_ray.estimation.design_numbers import ratio_of
from opacc_ray.estimation.fit import Fit, fit_failures, uses_regression
from opacc_ray.estimation.model_comparison import (
    SeveralModels,
    TrueClasses,
    compare_accuracies,
    compare_metric,
    cut_to_predictions,
    linearise,
)
from opacc_ray.estimation.numbers import KnownPool, numbers_of
from opacc_ray.estimation.prediction_powered import assisted_estimate
from opacc_ray.estimation.result import Estimate
from opacc_ray.estimation.sample import Rounds, Sample, check_level, join
from opacc_ray.estimation.totals import measure
from opacc_ray.history import History, histories_of
from opacc_ray.metrics.metric import ACCURACY, Metric, Ratio, count_of
from opacc_ray.parts.view import View, view_of, views_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.same_pool import content_of, refuse_other_order, refuse_other_pools
from opacc_ray.selection import Outcome, Selection

Codes = NDArray[np.integer]


def estimate(
    pool: KnownPool, sample: Sample, metric: Metric, by: str | None = None, level: float = 0.95
) -> dict[str, Estimate]:
    """Estimate a number of the pool (named ""), or in each of its slices or classes.

    Raises as :func:`opacc_ray.estimation.numbers.numbers_of` and :meth:`opacc_ray.estimation.numbers.Numbers.by`.
    """
    numbers = numbers_of(pool, sample, [metric])
    if by is not None:
        return numbers.by(metric, by, level)
    if metric.name == ACCURACY and numbers.failures is not None:
        return {"": accuracy_of(numbers.failures, sample, level)}
    return {"": numbers.estimate(metric, level)}


def measure_failures(view: View | None, sample: Sample) -> tuple[PoolFailures, Fit | None]:
    """Return the failures of the pool, and the fit that predicts them, if there is one."""
    fit = fit_failures(view, sample)
    return measure(sample, fit)[0], fit


def estimate_outcomes(
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
    ``combine="labels"`` are combined by :mod:`opacc_ray.estimation.fit`.
    """
    check_level(level)
    view, known = None if pool is None else view_of(pool), histories_of(history, 1)[0]
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    if view is not None and prediction is None:
        refuse_other_pools([view], selections)
    sample = join(selection, outcome, history=known)
    if prediction is not None:
        found = assisted_estimate(sample, prediction, level)
        content = content_of(view_of(Pool(confidence=prediction)))
        for part in selections:
            refuse_other_order(part, content, "the prediction")
        return found
    return accuracy_of(measure_failures(view, sample)[0], sample, level)


def compare_outcomes(
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
    check_level(level)
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    given = _rows(selections, [outcomes] if isinstance(selection, Selection) else outcomes)
    num = len(given[0])
    first = join(selections, [rows[0] for rows in given])
    models = [
        first,
        *(replace(join(selections, [rows[m] for rows in given]), rounds=first.rounds) for m in range(1, num)),
    ]
    size = first.rounds.pool_size
    predicted = None if predictions is None else _checked(predictions, num, size)
    views = None if pools is None else _views(pools, num, selections, size)
    by_fit = views is not None and uses_regression(selections)
    if views is not None and by_fit:
        known = histories_of(history, num)
        models = [replace(sample, history=own) for sample, own in zip(models, known, strict=True)]
        failures = [measure_failures(view, sample)[0] for view, sample in zip(views, models, strict=True)]
    else:
        failures = [measure(sample, None)[0] for sample in models]
    found = compare_accuracies(models, failures, level, predicted=by_fit)
    return found if predicted is None else cut_to_predictions(found, models, predicted)


def compare_by(metric: Metric, models: Sequence[tuple[KnownPool, Sample]], level: float) -> SeveralModels:
    """Compare a metric of several models, which have the same labels and classes; differences are by the design alone.

    Raises SpecError for a number that judges the confidence, and as :func:`estimate`.
    """
    if metric.judges_confidence:
        raise SpecError(f"{metric} is not compared between models; estimate it for each, or compare the accuracy")
    numbers = [numbers_of(pool, sample) for pool, sample in models]
    place, (pool, sample) = numbers[0].place_of(metric), models[0]
    assert sample.truth is not None
    labels = TrueClasses(sample.rounds.index, sample.truth, len(pool.classes))
    found = [linearise(sample.rounds, metric, place, own.predicted, labels) for own, _ in models]
    return compare_metric(sample.rounds, found, [own.estimate(metric, level) for own in numbers], labels, level)


def represent(
    asked: SampleOf, found: Estimate, sample: Sample, clusters: Codes | None, fit: Fit | None
) -> PoolAsSample:
    """Return how well the pool of ``sample``, with the accuracy ``found``, represents its population.

    ``clusters`` (N,) numbers them from 0, if they were drawn. Raises SpecError as
    :func:`opacc_ray.estimation.adjustments.pool_as_sample`.
    """
    rounds, failure = sample.rounds, sample.failure
    size, value, weight = rounds.pool_size, 1 - found.value, rounds.weights
    spread = max(value * (1 - value), 0.0)
    if not sample.is_binary:
        spread = min(spread, float(weight @ (failure - value) ** 2) / float(weight.sum()))
    if clusters is None:
        return pool_as_sample(asked, found, size, spread, None)
    forecast = np.full(size, float(failure.mean())) if fit is None else fit.failure
    labels = rounds.index, weight, failure
    deviations = cluster_deviations(clusters, int(clusters.max()) + 1, forecast, labels, value)
    return pool_as_sample(asked, found, size, spread, deviations)


def _views(pools: Iterable[Pool | View], num_models: int, selections: Sequence[Selection], size: int) -> list[View]:
    """Return the pools of all models; raises SpecError or DataError if one is not the pool of the selections."""
    views = views_of(pools)
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
    given = list(outcomes)
    if len(given) != len(selections) or not given or not len(given[0]):
        raise LabelError(f"{len(selections)} rounds and outcomes of {len(given)}: give (models, n) for each round")
    nums = {len(rows) for rows in given}
    if len(nums) > 1:
        raise LabelError(f"the rounds have outcomes of {sorted(nums)} models; give a row per model in every round")
    return given


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
    rounds = Rounds(selection)
    ids = [name for part in rounds.selections for name in part.ids]
    known = _read(counts) if isinstance(counts, str | Path) else counts
    missing = [name for name in ids if name not in known]
    if missing:
        raise LabelError(f"{counted(len(missing), 'chosen example')} without counts, the first {shown(missing[0])}")
    by_name = {name: np.array([count_of(known[own], name, own) for own in ids]) for name in asked.names}
    if not asked.sides(by_name)[1].any():
        raise LabelError("all counts below the line are 0, so there is nothing to divide by; label more examples")
    return ratio_of(asked, rounds, by_name, len(set(ids)), level)


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
