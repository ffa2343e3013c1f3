"""Select examples of a pool in memory, and estimate its accuracy from labels or outcomes.

:func:`estimate`, and ``previous`` of :func:`select`, accept labels wherever they accept outcomes: a mapping of ids to
labels, or labels in the order of ``selection.ids``. A label is the name of a class, as in `opacc labels import`, or its
index if the classes have no names. :func:`outcomes` compares labels with predictions without estimating anything.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.intervals import level_of_each
from opacc_ray.estimators.metrics import ACCURACY, Metric, find_place, is_of_class, parse_metric
from opacc_ray.estimators.model_comparison import SeveralModels
from opacc_ray.estimators.population import SampleOf
from opacc_ray.estimators.rounds import checked_rounds
from opacc_ray.estimators.statement import baseline
from opacc_ray.history import History, histories_of
from opacc_ray.labels.given_labels import are_labels, by_round, outcomes_of, predicted_and_true
from opacc_ray.parts.view import Pools, View, listed, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import Report, unreported
from opacc_ray.samplers.discovery import FDR, MOST_PROPOSED, Asked, Discovery
from opacc_ray.samplers.discovery import discover as discover_parts
from opacc_ray.samplers.estimate import compare as compare_outcomes
from opacc_ray.samplers.estimate import estimate as estimate_from_outcomes
from opacc_ray.samplers.estimate import refuse_other_pools, represent
from opacc_ray.samplers.judge_quality import JudgeQuality, judge_quality, judge_slicings
from opacc_ray.samplers.metric_estimates import MetricEstimates, Sample, compare_by
from opacc_ray.samplers.select import select as select_by_outcomes
from opacc_ray.selection import Selection
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, Slicing


def select(
    pool: Pools,
    method: str = "neyman",
    budget: int | None = None,
    seed: int = 0,
    *,
    previous: Sequence[tuple[Selection, Any]] = (),
    replicates: int | None = None,
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
    seed : a whole number of at least 0; the same seed, pool and parameters give the same selection
    previous : (selection, labels or outcomes) of every earlier round. Their examples are not chosen again, except by
        `srs` with replacement. For several models, outcomes have the shape (models, n)
    replicates : split the pool at random into that many parts and choose from each. This gives an interval for methods
        whose design has none
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
        parameters["serve"] = _served(parameters["serve"], pools[0])
    rounds = previous
    if isinstance(previous, Sequence) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in previous):
        rounds = [(selection, outcomes_of(selection, given, pools)) for selection, given in previous]
    others: dict[str, Any] = {"replicates": replicates, "history": history, "progress": progress}
    return select_by_outcomes(pools, method, budget, seed, previous=rounds, **others, **parameters)


def _served(serve: Any, pool: Pool | View) -> Any:
    """Return numbers to serve with the place of each class instead of its name."""
    asked = [serve] if isinstance(serve, str) else list(serve)
    names = getattr(pool, "classes", None)
    if not any(isinstance(name, str) and is_of_class(name) for name in asked):
        return asked
    classes = list(names) if names else [str(c) for c in range(1 + int(view_of(pool).column("prediction").max()))]
    metrics = [(name, parse_metric(name)) if is_of_class(name) else (name, None) for name in asked]
    return [name if own is None else f"{own.name}@{find_place(own, classes)}" for name, own in metrics]


def estimate(
    selection: Selection | Sequence[Selection],
    outcome: Any,
    level: float = 0.95,
    *,
    prediction: ArrayLike | None = None,
    pool: Pool | View | None = None,
    history: History | None = None,
    metric: str = ACCURACY,
    positive: str | int | None = None,
    by: str | None = None,
    together: bool = False,
    sample_of: int | str | None = None,
    clusters: ArrayLike | None = None,
) -> Any:
    """Estimate the accuracy, or another metric, on the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`select` returned, or ``Selection.load`` of a saved one. For several rounds a list
    outcome : (n,) outcomes or labels in the order of ``selection.ids``, or a mapping of ids to labels. An outcome is 1
        for correct, 0 for a misprediction, or a score in [0, 1]. Labels need ``pool``. For several rounds a list, or
        one mapping for all
    level : confidence level of the interval, between 0 and 1
    prediction : (N,) expected outcomes in [0, 1] of the whole pool, such as the model's confidence, for a
        prediction-powered estimate
    pool : the pool. `neyman` uses its features and all labels to predict the outcomes of unlabelled examples, which
        makes the estimate more precise. Without it, each round is estimated separately, which is exactly unbiased
    history : as given to :func:`select`; only with ``pool``
    metric : "accuracy", a mean over all classes ("macro_f1", "macro_recall", "macro_precision"), or a metric of one
        class: "precision", "recall", "f1" ("f2", "f0.5"), "specificity", "npv", "balanced_accuracy", "jaccard", "mcc",
        "kappa", "prevalence". All but the accuracy need labels and ``pool``
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
    if by is not None or asked.name != ACCURACY:
        return _metric(selection, outcome, level, asked, by, pool, history, together)
    given = _outcomes(selection, outcome, pool)
    found = estimate_from_outcomes(selection, given, level, prediction=prediction, pool=pool, history=history)
    if population is not None:
        return _of_population(population, found, selection, given, clusters, pool, history)
    return replace(found, effective_size=baseline(selection, given, found).effective_size)


def _outcomes(selection: Selection | Sequence[Selection], outcome: Any, pool: Pool | View | None) -> Any:
    """Return outcomes, round by round if there are several, from outcomes or labels."""
    given = by_round(selection, outcome)
    if isinstance(selection, Selection):
        return outcomes_of(selection, given[0], [pool])
    if given is outcome:
        return outcome
    return [outcomes_of(part, own, [pool]) for part, own in zip(selection, given, strict=True)]


def _population(sample_of: int | str | None, clusters: ArrayLike | None) -> SampleOf | None:
    """Return what the pool is a sample of; None if estimates are about the pool."""
    if sample_of is not None:
        return SampleOf.parse(sample_of, None if clusters is None else "clusters")
    if clusters is not None:
        raise SpecError("clusters are only used with sample_of: give sample_of='more', or the number of all clusters")
    return None


def _of_population(
    asked: SampleOf,
    found: Estimate,
    selection: Selection | Sequence[Selection],
    given: Any,
    clusters: ArrayLike | None,
    pool: Pool | View | None,
    history: History | None,
) -> Estimate:
    """Return the accuracy of the population from that of the pool."""
    selections, outcomes = checked_rounds(selection, given, found.level)
    codes = None
    if clusters is not None:
        codes = Slicing.of("clusters", clusters, most=math.inf).codes
        if len(codes) != (size := selections[0].pool_size):
            raise DataError(f"clusters have {len(codes)} values, for {size} examples; give one for each")
    sample = Sample(selections, outcomes, history=histories_of(history, 1)[0])
    return represent(asked, found, sample, codes, None if pool is None else view_of(pool)).of_population(found)


def assess_judges(
    selection: Selection | Sequence[Selection],
    outcome: Any,
    level: float = 0.95,
    *,
    pool: Pool | View,
    history: History | None = None,
) -> dict[str, JudgeQuality]:
    """Return what each judge of a pool is worth, by the labels: sensitivity, specificity and kappa with intervals.

    The arguments are those of :func:`estimate`; raises LabelError and DataError as it does, SpecError without judges.
    """
    sample, view = _sample(selection, outcome, level, pool, history)
    judges = view.judges() | sample.history.scores()
    if not judges:
        raise SpecError("the pool has no judges: give Pool(judges={'gpt': scores})")
    predicted, classes = _classes_of(pool, view, sample.truth)
    found = MetricEstimates(sample, predicted, classes, judge_slicings(judges), view)
    return {name: judge_quality(found, name, level) for name in judges}


def discover(
    selection: Selection | Sequence[Selection],
    outcome: Any,
    level: float = 0.95,
    *,
    pool: Pool | View,
    history: History | None = None,
    fdr: float = FDR,
    proposing: int = 0,
    most: int = MOST_PROPOSED,
    seed: int = 0,
) -> Discovery:
    """Find parts of the pool where the model is less accurate than in the rest.

    Candidates are slices of the pool, predicted classes, pairs of first and second choice, tails of the confidence, the
    surprise and the directions of the hidden layer, and crossings. They are known before the labels, so all labels test
    them. With ``proposing``, the labels of the first rounds choose what later labels test.

    Parameters
    ----------
    selection, outcome, pool, history : as for :func:`estimate`, all rounds in their order
    level : confidence level of the interval of each accuracy and each difference
    fdr : bound of the expected share of false ones among the confirmed parts (Benjamini and Hochberg)
    proposing : how many of the first rounds propose; 1 of a single round is a random half of its labels
    most : most parts that are proposed, and most ``slices`` of the result
    seed : for the split of a single round

    Returns
    -------
    Discovery
        Its ``parts`` have name, size, labels, accuracy, difference, p- and q-value. Its ``slices`` can be given to
        ``Pool(slices=…)``, so that the next round can look there.

    Raises
    ------
    LabelError, DataError
        As for :func:`estimate`, or a single label should propose.
    SpecError
        ``fdr``, ``proposing`` or ``most`` is not valid.
    """
    sample, view = _sample(selection, outcome, level, pool, history)
    _, classes = _classes_of(pool, view, sample.truth)
    return discover_parts(sample, classes, view, Asked(level, fdr, seed, proposing, most))


def compare(
    selection: Selection | Sequence[Selection],
    outcomes: Any,
    level: float = 0.95,
    *,
    pools: Iterable[Pool | View] | None = None,
    history: History | Sequence[History] | None = None,
    predictions: Sequence[ArrayLike] | None = None,
    metric: str = ACCURACY,
    positive: str | int | None = None,
) -> SeveralModels:
    """Compare the accuracy, or another metric, of several models by the labels of one sample.

    Without ``metric`` it is :func:`opacc_ray.samplers.estimate.compare` with the same arguments. Another metric needs
    labels in place of ``outcomes``, as :func:`estimate` takes them, and ``pools``: the pool of each model. Each metric
    is then stated as by :func:`estimate`, and each difference by the design alone.

    Raises LabelError, SpecError or DataError as these two.
    """
    asked = parse_metric(metric if positive is None else f"{metric}@{positive}")
    if asked.name == ACCURACY:
        return compare_outcomes(selection, outcomes, level, pools=pools, history=history, predictions=predictions)
    if pools is None:
        raise SpecError(f"{asked} needs the pool of each model: compare(…, labels, pools=[…], metric={metric!r})")
    models = list(pools)
    histories = histories_of(history, len(models))
    samples = [_sample(selection, outcomes, level, *own) for own in zip(models, histories, strict=True)]
    coded = [_classes_of(pool, view, sample.truth) for pool, (sample, view) in zip(models, samples, strict=True)]
    names = max((own for _, own in coded), key=len)
    rows = zip(samples, coded, strict=True)
    numbers = [MetricEstimates(sample, predicted, names, {}, view) for (sample, view), (predicted, _) in rows]
    return compare_by(asked, numbers, level)


def _metric(
    selection: Selection | Sequence[Selection],
    given: Any,
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
    sample, view = _sample(selection, given, level, pool, history)
    predicted, classes = _classes_of(pool, view, sample.truth)
    slicings = {} if by in (None, BY_PREDICTION, BY_TRUTH) else {str(by): view.slicing(str(by))}
    found = MetricEstimates(sample, predicted, classes, slicings, view)
    if by is None:
        return found.estimate(metric, level)
    if together:
        level = level_of_each(level, len(slicings[by].names) if by in slicings else len(classes))
    if by in slicings:
        return found.by_slice(metric, by, level)
    if metric.name != ACCURACY:
        raise SpecError(f"{metric} by {by}: give by=None, or the name of a slice; by {by} there is the accuracy")
    return found.by_prediction(level) if by == BY_PREDICTION else found.by_truth(level)


def _sample(
    selection: Selection | Sequence[Selection], given: Any, level: float, pool: Pool | View, history: History | None
) -> tuple[Sample, View]:
    """Return the labelled rounds, and the view of their pool."""
    selections, view = [selection] if isinstance(selection, Selection) else list(selection), view_of(pool)
    refuse_other_pools([view], selections)
    truth, parts = None, by_round(selection, given)
    if all(map(are_labels, parts)):
        compared = [predicted_and_true(part, own, pool) for part, own in zip(selections, parts, strict=True)]
        truth = np.concatenate([true for _, true in compared])
        parts = [(predicted == true).astype(np.float64) for predicted, true in compared]
    selections, values = checked_rounds(selections, parts, level)
    return Sample(selections, values, truth, histories_of(history, 1)[0]), view


def _classes_of(pool: Pool | View, view: View, truth: NDArray[np.int64] | None) -> tuple[NDArray[Any], list[str]]:
    """Return the predicted class of every example (N,), and the names of all; one class for values."""
    predicted = view.column("prediction") if "prediction" in view.fields else np.zeros(view.size)
    whole = predicted.astype(np.int32)
    if truth is None and not np.array_equal(predicted, whole):
        return np.zeros(view.size, dtype=np.int8), ["all"]
    names = getattr(pool, "classes", None)
    num = 1 + max(int(whole.max()), -1 if truth is None else int(truth.max()))
    return whole, list(names) if names else [str(c) for c in range(num)]
