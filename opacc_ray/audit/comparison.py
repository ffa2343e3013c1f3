"""Audit several models on one pool with the labels of one run: draw for all of them, and compare them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.accuracy import basis_of, checked_metric, circumstances_of, with_labels
from opacc_ray.audit.history import read_history, refuse_twice
from opacc_ray.audit.run_numbers import class_names
from opacc_ray.audit.training_data import drawn_after_export, taught_ids
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, SpecError, counted
from opacc_ray.estimation.adjustments import Allowance
from opacc_ray.estimation.estimate import KnownPool
from opacc_ray.estimation.failures import uses_regression
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import SeveralModels, compare_by, compare_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.extract.feature_set import Complete
from opacc_ray.extract.shards import digest_of
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, outcomes_of_another, read_rounds, stated
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.pools import planned_ids
from opacc_ray.metrics.metric import ACCURACY, parse_metric
from opacc_ray.parts.view import View
from opacc_ray.pool import NO_HISTORY, History
from opacc_ray.runs.run import Run, find_known, find_predictions, open_view
from opacc_ray.runs.run_documents import Basis, StatedEstimate
from opacc_ray.runs.series import runs_on_pool
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.base import MethodParameters
from opacc_ray.samplers.select import refuse_other_ids
from opacc_ray.selection import Outcome
from opacc_ray.spec import ModelSpec, Spec


class ComparedModel(Part):
    """One of the models."""

    run: str  # URI of its run
    accuracy: StatedEstimate  # its accuracy, or the metric that is compared
    best: float = Field(ge=0, le=1)  # probability that it is the best, by the normal law


class ComparedPair(Part):
    """Two of the models."""

    first: str  # URI of the run of one
    second: str  # URI of the run of the other
    difference: StatedEstimate  # first - second, in [-1, 1]; the intervals of all pairs hold together with the level
    num_first_better: int = Field(ge=0)  # labels on which the first has the higher outcome
    num_second_better: int = Field(ge=0)  # labels on which the second has the higher outcome
    # examples of the pool on which the two say different things; null: not known
    num_unlike: int | None = Field(default=None, ge=0)


class ModelComparison(Basis, Document):
    """The model of a run beside others on the same pool, by the labels of the run."""

    format: Literal["opacc-comparison/1"] = "opacc-comparison/1"
    same_listing: bool  # whether all pools were listed alike; else examples match by their ids
    # labelled examples of the rounds that were exported as training data: a model that learned them looks better on
    # them than on others
    taught: int = Field(default=0, ge=0)
    # whether all rounds were drawn after the export: then learned examples are among the labels as often as in the
    # pool, and the difference is that on the pool
    fresh: bool = False
    # examples of the pool that were not exported as training data
    num_unlearned: int | None = Field(default=None, ge=0)
    # difference on these examples alone, by design; null: there are more than two models, another metric is compared,
    # nothing was exported, or not all rounds were drawn after the export
    unlearned: StatedEstimate | None = None
    predicted: bool = False  # whether all labels predict, for each model, what is not labelled; else by design
    # what the interval of `opacc estimate` includes, and those of a comparison do not
    estimate_allows_for: list[Allowance] = Field(default=[])
    models: list[ComparedModel] = Field(min_length=2)  # all models, that of the run first
    differences: list[ComparedPair] = Field(min_length=1)  # all pairs of them


# -- the models of a run -----------------------------------------------------------------------------------------


def outcomes_of_all(known: Sequence[LabelledRound], run: Run, others: Sequence[Run]) -> list[NDArray[np.float64]]:
    """Return the outcomes of every model on the labelled examples, (models, n_t) of each round, the run's first.

    Raises DataError if another run lacks a labelled example.
    """
    score, ids = read_log(run).score, [name for item in known for name in item.known.ids]
    by_model: list[list[Outcome]] = [[item.outcome for item in known]]
    for other in others:
        predictions = find_predictions(other, ids)
        by_model.append(outcomes_of_another(known, other.spec.model, predictions, score))
    return [np.array(rows) for rows in zip(*by_model, strict=True)]


@contextmanager
def open_views(
    run: Run, others: Sequence[Run], needs: Sequence[str], parameters: MethodParameters
) -> Iterator[list[View]]:
    """Open the features for a method, of the run's model and of the others, as :func:`open_view`."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(open_view(own, needs, parameters.optional_features, parameters.instead))
            for own in (run, *others)
        ]


@contextmanager
def open_models(
    run: Run, needs: Sequence[str], parameters: MethodParameters, known: Sequence[LabelledRound], history: History
) -> Iterator[tuple[list[View], list[NDArray[np.float64]], list[History]]]:
    """Open the models that the labels of a run serve, the run's own model first.

    Returns features, outcomes of each round, (models, n_t), and histories.

    Raises DataError if there is no such run; SpecError if a model has another task or other classes, or its pool
    another size.
    """
    others = _open_others(run.spec, run.uri)
    own = run.complete_features().index.num_examples
    for other in others:
        theirs = other.read_index()
        if theirs is not None:
            _check_size(other, theirs.num_examples, run.uri, own)
    outcomes = outcomes_of_all(known, run, others) if known else []
    with open_views(run, others, needs, parameters) as views:
        yield views, outcomes, histories(history, len(others))


def histories(own: History, num_others: int) -> list[History]:
    """Return the history of each model: for the other models only what is known about the pool."""
    return [own, *[own if own is NO_HISTORY else History(judges=own.judges)] * num_others]


def _check_size(other: Run, size: int, place: str, own: int, *, or_fewer: bool = False) -> None:
    """Raise SpecError unless another run has the size of the run's own pool, ``or_fewer`` examples."""
    if size > own or (size < own and not or_fewer):
        raise SpecError(
            f"{other.uri} holds {size} examples and {place} {own}; give runs on the same pool in sample.models"
        )


def check_models(spec: Spec, plan: Plan | None) -> str:
    """Check the other models that the labels will serve, before extraction; returns a summary.

    Raises DataError if there is no such run, its features are incomplete, or its pool has another order; SpecError if a
    model has another task or other classes, its pool has another size than ``plan``, or a run is named twice.
    """
    others = _open_others(spec, "the spec")
    refuse_twice("sample.models", [other.uri for other in others])
    for number, other in enumerate(others, start=2):
        there = other.read_features()
        if there is None:
            raise DataError(f"the features of {other.uri} are incomplete; run its spec again, then this one")
        if plan is not None and plan.num_examples is not None:
            leaves_out = spec.extract.on_bad_item != "error"  # extraction may give features of fewer examples
            _check_size(other, there.index.num_examples, spec.pool.uri, plan.num_examples, or_fewer=leaves_out)
            if plan.num_examples == there.index.num_examples:
                _check_order(spec, plan, there, number)
    return f"{counted(len(others), 'other model')} in addition to the spec's own"


def _check_order(spec: Spec, plan: Plan, there: Complete, number: int) -> None:
    """Raise DataError if pool ``number`` has another order than the listing, as far as that contains ids.

    Ids are read only if their digest in the index differs or is missing.
    """
    planned = [planned_ids(spec.pool.format, shard) for shard in plan.shards]
    own = [name for names in planned if names is not None for name in names]
    if len(own) < there.index.num_examples:
        return
    stop = 0
    for part, shard in enumerate(shard for shard in there.index.shards if shard.examples):
        start, stop = stop, stop + shard.examples
        ids = own[start:stop]
        if shard.ids != digest_of(ids):
            refuse_other_ids(range(start, stop), ids, "the first pool", there.features.ids(part), f"pool {number}")


def _open_others(spec: Spec, place: str) -> list[Run]:
    """Open the other runs of a spec; raises SpecError if a model is not comparable with that of ``place``."""
    others = [Run.open(uri) for uri in spec.sample.models or ()]
    for other in others:
        check_comparable(spec.model, place, other)
    return others


def check_comparable(own: ModelSpec, place: str, other: Run) -> None:
    """Raise SpecError unless the model of ``place`` and that of another run have the same task and classes."""
    theirs = other.spec.model
    if own.task in ("grade", "counts"):
        other_way = "audit a preference between two instead, with model.grades: preference"
        remedy = other_way if own.task == "grade" else "audit each, and compare their intervals"
        raise SpecError(f"{place}: labels of task: {own.task} judge the answers of one model; {remedy}")
    if own.task != theirs.task:
        raise SpecError(f"{place} has the task {own.task} and {other.uri} {theirs.task}; give runs with the same task")
    mine, others = own.classes, theirs.classes
    if own.task == "regression" or (mine is None and others is None):
        return
    if mine is None or others is None:
        nameless = place if mine is None else other.uri
        raise SpecError(
            f"{nameless} does not name its classes, and the other run does; run its spec with model.classes"
        )
    strange = next((name for name in (*mine, *others) if (name in mine) != (name in others)), None)
    if strange is not None:
        whose = place if strange in mine else other.uri
        raise SpecError(
            f"{strange!r} is a class of {whose} alone; give runs whose models have the same classes, in any order"
        )


# -- comparison ------------------------------------------------------------------------------------------------


def compare(
    run: Run,
    *others: Run,
    level: float = 0.95,
    partial: bool = False,
    metric: str = ACCURACY,
) -> ModelComparison:
    """Compare the accuracy of a run's model with other models on the same pool, using the labels of the run.

    Another ``metric``, such as ``macro_f1``, needs pools with the same examples in the same order; its differences are
    estimated by the design alone.

    The other runs only need features: their predictions for the labelled examples are found by id. If the rounds learn
    from all labels and the pools have the same examples in the same order, predictions improve the estimate of each
    model. Nothing is written.

    Raises SpecError if the models have different tasks or classes, or there is no such metric; DataError if another run
    lacks a labelled example; LabelError as :func:`opacc_ray.audit.accuracy.estimate`.
    """
    for other in others:
        check_comparable(run.spec.model, run.uri, other)
    rounds = read_rounds(run)
    known = with_labels(run, rounds, partial)
    outcomes = outcomes_of_all(known, run, others)
    compared, predicted = _compared(run, others, known, outcomes, level, metric)
    uris = [run.uri, *(other.uri for other in others)]
    pairs = [
        ComparedPair(
            first=uris[item.first],
            second=uris[item.second],
            difference=StatedEstimate(**stated(item.difference, rounds)),
            num_first_better=item.num_first_better,
            num_second_better=item.num_second_better,
            num_unlike=item.num_unlike,
        )
        for item in compared.differences
    ]
    return ModelComparison(
        **basis_of(run, rounds) | ({} if metric == ACCURACY else {"measure": metric}),
        **_learned(run, others, rounds, known, outcomes if metric == ACCURACY else None, level),
        same_listing=all(run.header.pool.digest == other.header.pool.digest for other in others),
        predicted=predicted,
        estimate_allows_for=list(circumstances_of(run, known, level).statement(compared.models[0]).allows_for),
        models=[
            ComparedModel(run=uri, accuracy=StatedEstimate(**stated(model, rounds)), best=best)
            for uri, model, best in zip(uris, compared.models, compared.best, strict=True)
        ],
        differences=pairs,
    )


def difference_by(
    run: Run, other: Run, known: Sequence[LabelledRound], level: float, metric: str = ACCURACY
) -> Estimate:
    """Estimate the difference in accuracy, or a metric, of a run's model and another one, from some rounds of the run.

    Raises as :func:`compare`.
    """
    check_comparable(run.spec.model, run.uri, other)
    outcomes = outcomes_of_all(known, run, [other])
    return _compared(run, [other], known, outcomes, level, metric)[0].differences[0].difference


def _compared(
    run: Run,
    others: Sequence[Run],
    known: Sequence[LabelledRound],
    outcomes: Sequence[NDArray[np.float64]],
    level: float,
    metric: str,
) -> tuple[SeveralModels, bool]:
    """Return the comparison, and whether predictions from the labels improve it."""
    selections = [item.known for item in known]
    parameters = parse_parameters(selections[0].method, selections[0].parameters)
    with open_views(run, others, (), parameters) as views:
        predictions = _predictions(run, others, views)
        if metric != ACCURACY:
            return _compared_by(metric, run, known, outcomes, level, views, predictions), False
        if uses_regression(selections):
            index = np.concatenate([part.index for part in selections])
            names = [view.identify(index) if view.size == views[0].size else None for view in views]
            if all(own == other for own, other in pairwise(names)):
                history = histories(read_history(run), len(others))
                compared = compare_outcomes(
                    selections, outcomes, level, pools=views, history=history, predictions=predictions
                )
                return compared, True
    return compare_outcomes(selections, outcomes, level, predictions=predictions), False


def _compared_by(
    metric: str,
    run: Run,
    known: Sequence[LabelledRound],
    outcomes: Sequence[NDArray[np.float64]],
    level: float,
    views: Sequence[View],
    predictions: Sequence[NDArray[np.float64]] | None,
) -> SeveralModels:
    """Return the comparison of a metric."""
    if parse_metric(metric).is_error:
        raise SpecError(f"--metric {metric} is not compared between models; estimate it for each, or remove it")
    classes, selections = class_names(run), [item.known for item in known]
    if classes is None or not run.spec.model.has_classes:
        raise SpecError(f"--metric {metric} needs the names of the classes; give them in model.classes, or remove it")
    asked = checked_metric(metric, classes)
    if predictions is None:
        raise DataError(f"--metric {metric} needs runs on the same examples in the same order; remove it")
    truth = np.array([classes.index(name) for item in known for name in item.truth], dtype=np.int64)
    history = histories(read_history(run), len(views) - 1)
    rows = zip(zip(*outcomes, strict=True), history, predictions, views, strict=True)
    models = [
        (KnownPool(view, predicted.astype(np.int32), classes), join(selections, own, truth=truth, history=known_before))
        for own, known_before, predicted, view in rows
    ]
    return compare_by(asked, models, level)


def _predictions(run: Run, others: Sequence[Run], views: Sequence[View]) -> list[NDArray[np.float64]] | None:
    """Return each model's predictions, (N,), with classes numbered as in the run; None if the orders differ."""
    orders = [[(shard.examples, shard.ids) for shard in own.complete_features().index.shards] for own in (run, *others)]
    if any(order != orders[0] for order in orders) or any(ids is None for _, ids in orders[0]):
        return None
    classes = run.spec.model.classes
    result = [views[0].column("prediction")]
    for other, view in zip(others, views[1:], strict=True):
        said, theirs = view.column("prediction"), other.spec.model.classes
        places = None if classes is None or theirs is None else np.array([classes.index(name) for name in theirs])
        result.append(said if places is None else places[said.astype(np.int64)].astype(np.float64))
    return result


def _learned(
    run: Run,
    others: Sequence[Run],
    rounds: Sequence[LabelledRound],
    known: Sequence[LabelledRound],
    outcomes: Sequence[NDArray[np.float64]] | None,
    level: float,
) -> dict[str, Any]:
    """Return the fields on examples that models may have learned; ``outcomes`` is None for another metric."""
    digest = run.header.model.sha256
    if all(run.uri == own.uri or (digest is not None and digest == own.header.model.sha256) for own in others):
        return {"taught": 0, "fresh": False}  # it is the same model, which did not learn from its own labels
    models, uris = [own.spec.model for own in (run, *others)], {own.uri for own in (run, *others)}
    siblings = (own for own in runs_on_pool(run) if own.uri not in uris and own.spec.model in models)
    others = [*others, *siblings]  # another run of a compared model may have exported labels as well
    taught = taught_ids([run, *others])
    if not taught:
        return {"taught": 0, "fresh": False}
    num = known[0].known.pool_size - len(find_known(run, sorted(taught)))
    result: dict[str, Any] = {
        "taught": len(taught.intersection(id for item in known for id in item.known.ids)),
        "fresh": drawn_after_export(run, others),
        "num_unlearned": num,
    }
    if result["fresh"] and num and len(models) == 2 and outcomes is not None:
        own = difference_without(taught, num, known, outcomes, level)
        result["unlearned"] = StatedEstimate(**stated(own, rounds))
    return result


def difference_without(
    taught: set[str],
    num: int,
    known: Sequence[LabelledRound],
    outcomes: Sequence[NDArray[np.float64]],
    level: float,
) -> Estimate:
    """Estimate the difference of two models on the ``num`` examples of the pool that are not ``taught``, by design.

    If both had equal outcomes on the taught ones, it would be N / num times the difference on the whole pool.
    """
    selections = [item.known for item in known]
    marks = (np.array([id in taught for id in item.known.ids], dtype=bool) for item in known)
    equal = [np.where(mark, own[0], own) for mark, own in zip(marks, outcomes, strict=True)]
    whole, scale = compare_outcomes(selections, equal, level).differences[0].difference, selections[0].pool_size / num
    value, low, high = (min(max(end * scale, -1.0), 1.0) for end in (whole.value, whole.low, whole.high))
    return replace(whole, value=value, low=low, high=high, standard_error=whole.standard_error * scale)
