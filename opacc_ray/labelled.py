"""Select examples of a pool in memory, and estimate its accuracy from labels or outcomes.

The caller says which: ``labels=`` are true classes, to be compared with the predictions of the pool, and ``outcomes=``
are 1 for right, 0 for wrong, or a score. A round is a :class:`~opacc_ray.labels.given_labels.Labelled`. A label is the
name of a class, as in `opacc labels import`, or its index if the classes have no names.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.adjustments import SampleOf, baseline, represent
from opacc_ray.estimation.design_numbers import estimate_error
from opacc_ray.estimation.estimate import (
    JudgeQuality,
    KnownPool,
    fitted_outcomes,
    judge_quality,
    judge_slicings,
    numbers_of,
)
from opacc_ray.estimation.estimate import estimate as estimate_number
from opacc_ray.estimation.intervals import Estimate, level_of_each
from opacc_ray.estimation.model_comparison import SeveralModels, compare_by, compare_outcomes
from opacc_ray.estimation.sample import Sample, check_level, join
from opacc_ray.labels.given_labels import Labelled, labelled_rounds, named
from opacc_ray.metrics.metric import ACCURACY, Metric, find_place, is_of_class, parse_metric
from opacc_ray.parts.view import Pools, View, listed, view_of
from opacc_ray.pool import OF_CLASSES, History, Pool, Slicing, histories_of
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.samplers.select import refuse_other_pools
from opacc_ray.samplers.select import select as select_by_outcomes
from opacc_ray.selection import Selection


def select(
    pool: Pools,
    method: str = "neyman",
    budget: int | None = None,
    seed: int | np.random.Generator | None = 0,
    *,
    previous: Sequence[Labelled] = (),
    history: History | Sequence[History] | None = None,
    progress: Report = unreported,
    **parameters: Any,
) -> Selection:
    """Choose ``budget`` examples of the pool to label.

    Parameters
    ----------
    pool : the examples with the features that the method needs. For several models a list of pools, one per model, with
        the same examples in the same order (`neyman` only)
    method : name of a method, see `opacc methods`
    budget : number of labels
    seed : a whole number of at least 0; the same seed, pool and parameters give the same selection. None, or a
        generator of NumPy, draws the seed, which ``selection.seed`` records
    previous : ``opacc.Labelled(selection, labels=…)``, or ``outcomes=…``, of every earlier round. Their examples are
        not chosen again, except by `srs` with replacement. For several models, outcomes have the shape (models, n)
    history : what is known before the first label, for methods that use it. Give the same history to all rounds and to
        the estimate
    progress : called as ``progress(done, total)``, in this thread, after each step of methods that choose step by step
        (ces, deepreduce): ``done`` examples are chosen of ``total``, the budget or None. An exception that it raises
        ends the selection
    parameters : parameters of the method, see `opacc methods METHOD`. ``serve`` of `neyman` names the numbers that the
        draw serves: "accuracy", a metric such as "macro_f1" or "recall@CLASS", the name of slices, "prediction"

    Returns
    -------
    Selection
        The examples in order of choice, with the design that the estimate needs. Its facts contain a ``notice`` if the
        labels of earlier rounds contradict the confidence.

    Raises
    ------
    SpecError
        Unknown method or parameter, a negative seed, a budget that does not fit the pool, or an argument of a wrong
        type.
    LabelError
        The labels do not fit the earlier rounds, or all examples are labelled.
    DataError
        The pool lacks a feature, a value is not finite, or ids or their order differ from an earlier round or another
        pool.
    """
    pools = listed(pool)
    if "serve" in parameters:
        parameters["serve"] = _served(parameters["serve"], pools)
    rounds = [
        (own.selection, own.outcome(*pools) if len(pools) == 1 else own.rows(pools))
        for own in labelled_rounds(previous)
    ]
    others: dict[str, Any] = {"history": history, "progress": progress}
    return select_by_outcomes(pools, method, budget, seed, previous=rounds, **others, **parameters)


def _served(serve: Any, pools: Sequence[Pool | View]) -> Any:
    """Return numbers to serve with the place of each class instead of its name."""
    asked = [serve] if isinstance(serve, str) else list(serve)
    if not any(isinstance(name, str) and is_of_class(name) for name in asked):
        return asked
    names = _common_names(pools)
    classes = list(names) if names else [str(c) for c in range(1 + int(view_of(pools[0]).column("prediction").max()))]
    metrics = [(name, parse_metric(name)) if is_of_class(name) else (name, None) for name in asked]
    return [name if own is None else f"{own.name}@{find_place(own, classes)}" for name, own in metrics]


def _common_names(pools: Sequence[Pool | View]) -> tuple[str, ...] | None:
    """Return the names of the classes; SpecError where the classes of two models have other numbers."""
    named_classes = {tuple(names) for pool in pools if (names := getattr(pool, "classes", None))}
    if len(named_classes) > 1:
        stated = " and ".join(", ".join(names[:9]) for names in sorted(named_classes)[:2])
        raise SpecError(f"two models have different classes, {stated}: give each pool all of them, Pool(classes=[…])")
    return named_classes.pop() if named_classes else None


@overload
def estimate(
    selection: Selection | Labelled | Sequence[Labelled],
    *,
    labels: Any = None,
    outcomes: Any = None,
    level: float = 0.95,
    prediction: ArrayLike | None = None,
    pool: Pool | View | None = None,
    history: History | None = None,
    metric: str = ACCURACY,
    positive: str | int | None = None,
    by: None = None,
    sample_of: int | str | None = None,
    clusters: ArrayLike | None = None,
) -> Estimate: ...
@overload
def estimate(
    selection: Selection | Labelled | Sequence[Labelled],
    *,
    by: str,
    labels: Any = None,
    outcomes: Any = None,
    level: float = 0.95,
    pool: Pool | View,
    history: History | None = None,
    metric: str = ACCURACY,
    positive: str | int | None = None,
    together: bool = False,
) -> dict[str, Estimate]: ...
@named("opacc.estimate(selection, labels=…, pool=pool) or opacc.estimate(selection, outcomes=…)")
def estimate(
    selection: Selection | Labelled | Sequence[Labelled],
    *,
    labels: Any = None,
    outcomes: Any = None,
    level: float = 0.95,
    prediction: ArrayLike | None = None,
    pool: Pool | View | None = None,
    history: History | None = None,
    metric: str = ACCURACY,
    positive: str | int | None = None,
    by: str | None = None,
    together: bool = False,
    sample_of: int | str | None = None,
    clusters: ArrayLike | None = None,
) -> Estimate | dict[str, Estimate]:
    """Estimate the accuracy, or another metric, on the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`select` returned, or ``Selection.load`` of a saved one. For several rounds a list with
        ``opacc.Labelled(selection, labels=…)`` of each, or ``outcomes=…``
    labels : true classes of the chosen examples, which ``pool`` has predicted: a mapping of ids, a pandas Series whose
        index has the ids, a table with the columns ``id`` and ``label``, or values in the order of ``selection.ids``.
        Each is one of ``pool.classes``, or one of the predicted classes if these have no names
    outcomes : in the same forms, instead of labels: 1 where the model is right, 0 where it is wrong, or a score in
        [0, 1]
    level : confidence level of the interval, between 0 and 1
    prediction : (N,) expected outcomes in [0, 1] of the whole pool, such as the model's confidence, for a
        prediction-powered estimate
    pool : the pool. `neyman` uses its features and all labels to predict the outcomes of unlabelled examples, which
        makes the estimate more precise. Without it, each round is estimated separately, which is exactly unbiased
    history : as given to :func:`select`; only with ``pool``
    metric : "accuracy", a mean over all classes ("macro_f1", "macro_recall", "macro_precision"), or a metric of one
        class: "precision", "recall", "f1" ("f2", "f0.5"), "specificity", "npv", "balanced_accuracy", "jaccard", "mcc",
        "kappa", "prevalence"; of predicted values "mae", "rmse" or "bias", in their unit. All but the accuracy need
        labels and ``pool``
    positive : class of the metric, as a label names it; with two classes the second by default. "f1@CLASS" is the same
    by : a name of ``pool.slices``, or several crossed ("camera*region"), "prediction" or "truth": the metric in each
        slice or class
    together : with ``by``, whether all intervals together hold with probability ``level``, and not each: they are wider
    sample_of : state the accuracy for a population of which the pool is a simple random sample: its size, or "more" for
        any size
    clusters : (N,) names, such as those of videos: these were drawn, with all their examples; ``sample_of`` counts them

    Returns
    -------
    Estimate
        Value and interval, with ``effective_size`` for the accuracy. ``reason`` says why an interval is not
        design-based, or that labels contradict the confidence. With ``by`` a dict, slice -> Estimate

    Raises
    ------
    LabelError
        A label is missing or none of the classes, an outcome is not in [0, 1], or a round is missing.
    DataError
        A prediction is not in [0, 1], or the pool has other ids or another order than the selection.
    SpecError
        The method does not accept ``prediction``, the pool has another size, or there is no such metric, class or
        slice.
    """
    asked = parse_metric(metric if positive is None else f"{metric}@{positive}")
    population = _population(sample_of, clusters)
    if population is not None and (by is not None or asked.name != ACCURACY):
        raise SpecError("sample_of is about the accuracy; remove it, or metric and by")
    if together and by is None:
        raise SpecError("together=True is about the slices of by: give by, such as by='camera'")
    rounds = labelled_rounds(selection, labels, outcomes)
    if by is not None or asked.name != ACCURACY:
        return _metric(rounds, level, asked, by, pool, history, together)
    selections, values = [own.selection for own in rounds], [own.outcome(pool) for own in rounds]
    found, sample, fit = fitted_outcomes(selections, values, level, prediction=prediction, pool=pool, history=history)
    if population is not None:
        return represent(population, found, sample, _codes(clusters, sample), fit).of_population(found)
    return replace(found, effective_size=baseline(sample, found).effective_size)


def _population(sample_of: int | str | None, clusters: ArrayLike | None) -> SampleOf | None:
    """Return what the pool is a sample of; None if estimates are about the pool."""
    if sample_of is not None:
        return SampleOf.parse(sample_of, None if clusters is None else "clusters")
    if clusters is not None:
        raise SpecError("clusters are only used with sample_of: give sample_of='more', or the number of all clusters")
    return None


def _codes(clusters: ArrayLike | None, sample: Sample) -> NDArray[np.integer] | None:
    """Return the cluster of each example, (N,) from 0; None without clusters."""
    if clusters is None:
        return None
    codes = Slicing.of("clusters", clusters, most=math.inf).codes
    if len(codes) != (size := sample.rounds.pool_size):
        raise DataError(f"clusters have {len(codes)} values, for {size} examples; give one for each")
    return codes


@named("opacc.assess_judges(selection, labels=…, pool=pool) or opacc.assess_judges(selection, outcomes=…, pool=pool)")
def assess_judges(
    selection: Selection | Labelled | Sequence[Labelled],
    *,
    labels: Any = None,
    outcomes: Any = None,
    level: float = 0.95,
    pool: Pool | View,
    history: History | None = None,
) -> dict[str, JudgeQuality]:
    """Return what each judge of a pool is worth, by the labels: sensitivity, specificity and kappa with intervals.

    The arguments are those of :func:`estimate`; raises LabelError and DataError as it does, SpecError without judges.
    """
    sample, view = read_sample(labelled_rounds(selection, labels, outcomes), level, pool, history)
    judges = view.judges(sample.history.judges)
    if not judges:
        raise SpecError("the pool has no judges: give Pool(judges={'gpt': scores})")
    numbers = numbers_of(KnownPool(view, *classes_of(pool, view, sample.truth), judge_slicings(judges)), sample)
    return {name: judge_quality(numbers, name, level) for name in judges}


@named("opacc.compare(selection, labels=…, pools=[…]) or opacc.compare(selection, outcomes=[…])")
def compare(
    selection: Selection | Labelled | Sequence[Labelled],
    *,
    labels: Any = None,
    outcomes: Any = None,
    level: float = 0.95,
    pools: Iterable[Pool | View] | None = None,
    history: History | Sequence[History] | None = None,
    predictions: Sequence[ArrayLike] | None = None,
    metric: str = ACCURACY,
    positive: str | int | None = None,
) -> SeveralModels:
    """Compare the accuracy, or another metric, of several models by the labels of one sample.

    Parameters
    ----------
    selection, labels : as for :func:`estimate`; drawn for any of the models. Labels need ``pools``
    outcomes : instead of labels, a list with the outcomes of each model
    level : confidence level of each number, and of all differences together
    pools : the pool of each model, with the same examples in the same order. For rounds of `neyman`, all labels then
        predict the unlabelled outcomes
    history : as given to :func:`select`: one for all models, or one for each
    predictions : (models, N) the prediction of each model for every example. Where two models agree, both are right or
        both are wrong, so their difference is at most the share of examples on which they disagree
    metric, positive : as for :func:`estimate`; all but the accuracy need labels and ``pools``. Each difference is then
        stated by the design alone

    Raises
    ------
    LabelError, SpecError, DataError
        As :func:`estimate`.
    """
    asked = parse_metric(metric if positive is None else f"{metric}@{positive}")
    if asked.is_error:
        raise SpecError(f"{asked} is not compared between models; estimate it for each")
    rounds = labelled_rounds(selection, labels, outcomes)
    models = None if pools is None else list(pools)
    if asked.name == ACCURACY:
        selections, rows = [own.selection for own in rounds], [own.rows(models) for own in rounds]
        return compare_outcomes(selections, rows, level, pools=models, history=history, predictions=predictions)
    if models is None:
        raise SpecError(f"{asked} needs the pool of each model: compare(…, labels=…, pools=[…], metric={metric!r})")
    _common_names(models)
    histories = histories_of(history, len(models))
    samples = [read_sample(rounds, level, *own) for own in zip(models, histories, strict=True)]
    coded = [classes_of(pool, view, sample.truth) for pool, (sample, view) in zip(models, samples, strict=True)]
    names = max((own for _, own in coded), key=len)
    known = [KnownPool(view, predicted, names) for (_, view), (predicted, _) in zip(samples, coded, strict=True)]
    return compare_by(asked, [(own, sample) for own, (sample, _) in zip(known, samples, strict=True)], level)


def _metric(
    rounds: Sequence[Labelled],
    level: float,
    metric: Metric,
    by: str | None,
    pool: Pool | View | None,
    history: History | None,
    together: bool,
) -> Any:
    """Estimate a metric of the pool or of its parts, from labels or outcomes."""
    if pool is None:
        raise SpecError(f"{metric if by is None else f'{metric} by {by}'} needs the pool: estimate(…, pool=pool)")
    if metric.is_error:
        return _error(rounds, level, metric, by, pool)
    sample, view = read_sample(rounds, level, pool, history)
    predicted, classes = classes_of(pool, view, sample.truth)
    slicings = {} if by in (None, *OF_CLASSES) else {str(by): view.slicing(str(by))}
    if by in OF_CLASSES and metric.name != ACCURACY:
        raise SpecError(f"{metric} by {by}: give by=None, or the name of a slice; by {by} there is the accuracy")
    if together:
        level = level_of_each(level, len(slicings[by].names) if by in slicings else len(classes))
    found = estimate_number(KnownPool(view, predicted, classes, slicings), sample, metric, by, level)
    return found[""] if by is None else found


def _error(rounds: Sequence[Labelled], level: float, metric: Metric, by: str | None, pool: Pool | View) -> Estimate:
    """Estimate a number about the errors of predicted values."""
    if by is not None:
        raise SpecError(f"{metric} is stated of the whole pool only; remove by={by!r}")
    check_level(level)
    selections = [own.selection for own in rounds]
    refuse_other_pools([view_of(pool)], selections)
    sample = join(selections, [np.zeros(len(own)) for own in selections])
    return estimate_error(metric.name, sample.rounds, np.concatenate([own.errors(pool) for own in rounds]), level)


def read_sample(
    rounds: Sequence[Labelled], level: float, pool: Pool | View, history: History | None
) -> tuple[Sample, View]:
    """Return the labelled rounds, and the view of their pool."""
    selections, view, truth = [own.selection for own in rounds], view_of(pool), None
    refuse_other_pools([view], selections)
    if rounds and all(own.outcomes is None for own in rounds):
        compared = [own.predicted_and_true(pool) for own in rounds]
        truth = np.concatenate([true for _, true in compared])
        outcomes = [np.equal(*pair).astype(np.float64) for pair in compared]
    else:
        outcomes = [own.outcome(pool) for own in rounds]
    check_level(level)
    return join(selections, outcomes, truth=truth, history=histories_of(history, 1)[0]), view


def classes_of(pool: Pool | View, view: View, truth: NDArray[np.int64] | None) -> tuple[NDArray[Any], list[str]]:
    """Return the predicted class of every example (N,), and the names of all; one class for values."""
    predicted = view.column("prediction") if "prediction" in view.fields else np.zeros(view.size)
    whole = predicted.astype(np.int32)
    if truth is None and (whole.min() < 0 or not np.array_equal(predicted, whole)):
        return np.zeros(view.size, dtype=np.int8), ["all"]
    if whole.min() < 0:
        raise SpecError(f"a class is {whole.min()}: classes are counted from 0; give the predictions names, as texts")
    names = getattr(pool, "classes", None)
    num = 1 + max(int(whole.max()), -1 if truth is None else int(truth.max()))
    return whole, list(names) if names else [str(c) for c in range(num)]
