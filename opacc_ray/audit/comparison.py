"""Compare the models of several runs on one pool, with the labels of one of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.accuracy import basis_of, circumstances_of, with_labels
from opacc_ray.audit.carried_labels import drawn_after_export, taught_ids
from opacc_ray.audit.prior_knowledge import read_history
from opacc_ray.audit.run_numbers import checked_metric, class_names
from opacc_ray.audit.several_models import check_comparable, histories, open_views, outcomes_of_all
from opacc_ray.audit.stages import extract
from opacc_ray.audit.verbs import start
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.adjustments import Allowance
from opacc_ray.estimation.estimate import KnownPool
from opacc_ray.estimation.failures import uses_regression
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import SeveralModels, compare_by, compare_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.extract import user_code
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds, stated
from opacc_ray.metrics.metric import ACCURACY, parse_metric
from opacc_ray.parts.view import View
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import Basis, StatedEstimate
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import runs_on_pool
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.base import unreported
from opacc_ray.selection import Selection
from opacc_ray.spec.table_spec import is_table, spec_of_other_model


class ComparedModel(Part):
    """One of the models."""

    run: str = Field(description="URI of its run")
    accuracy: StatedEstimate = Field(description="its accuracy, or the metric that is compared")
    best: float = Field(ge=0, le=1, description="probability that it is the best, by the normal law")


class ComparedPair(Part):
    """Two of the models."""

    first: str = Field(description="URI of the run of one")
    second: str = Field(description="URI of the run of the other")
    difference: StatedEstimate = Field(
        description="first - second, in [-1, 1]; the intervals of all pairs hold together with the level"
    )
    num_first_better: int = Field(ge=0, description="labels on which the first has the higher outcome")
    num_second_better: int = Field(ge=0, description="labels on which the second has the higher outcome")
    num_unlike: int | None = Field(
        default=None, ge=0, description="examples of the pool on which the two say different things; null: not known"
    )


class ModelComparison(Basis, Document):
    """The model of a run beside others on the same pool, by the labels of the run."""

    format: Literal["opacc-comparison/1"] = format_field("opacc-comparison/1")
    same_listing: bool = Field(description="whether all pools were listed alike; else examples match by their ids")
    taught: int = Field(
        default=0,
        ge=0,
        description="labelled examples of the rounds that were exported as training data: a model that learned them "
        "looks better on them than on others",
    )
    fresh: bool = Field(
        default=False,
        description="whether all rounds were drawn after the export: then learned examples are among the labels as "
        "often as in the pool, and the difference is that on the pool",
    )
    num_unlearned: int | None = Field(
        default=None, ge=0, description="examples of the pool that were not exported as training data"
    )
    unlearned: StatedEstimate | None = Field(
        default=None,
        description="difference on these examples alone, by design; null: there are more than two models, another "
        "metric is compared, nothing was exported, or not all rounds were drawn after the export",
    )
    predicted: bool = Field(
        default=False, description="whether all labels predict, for each model, what is not labelled; else by design"
    )
    estimate_allows_for: list[Allowance] = Field(
        default=[], description="what the interval of `opacc estimate` includes, and those of a comparison do not"
    )
    models: list[ComparedModel] = Field(min_length=2, description="all models, that of the run first")
    differences: list[ComparedPair] = Field(min_length=1, description="all pairs of them")


def open_other(run: Run, uri: str) -> Run:
    """Open the run of another model; of a file of its predictions for the same pool, make one that draws no sample."""
    if not is_table(uri):
        return Run.open(uri)
    with user_code.isolated():
        other, stages = start(spec_of_other_model(uri, run.spec))
        extract(stages, unreported)
    return other


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
    rounds, score = read_rounds(run), read_log(run).score
    known = with_labels(run, rounds, partial)
    outcomes = outcomes_of_all(known, run, others, score)
    predicted, measure = False, {} if metric == ACCURACY else {"measure": metric}
    if metric == ACCURACY:
        found, predicted = _compared(run, others, [item.known for item in known], outcomes, level)
    else:
        found = _compared_by(metric, run, others, known, outcomes, level)
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
        for item in found.differences
    ]
    return ModelComparison(
        **basis_of(run, rounds) | measure,
        **_learned(run, others, rounds, known, outcomes if metric == ACCURACY else None, level),
        same_listing=all(run.header.pool.digest == other.header.pool.digest for other in others),
        predicted=predicted,
        estimate_allows_for=list(circumstances_of(run, known, level).statement(found.models[0]).allows_for),
        models=[
            ComparedModel(run=uri, accuracy=StatedEstimate(**stated(model, rounds)), best=best)
            for uri, model, best in zip(uris, found.models, found.best, strict=True)
        ],
        differences=pairs,
    )


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
    num = known[0].known.pool_size - len(feature_store.find_known(run, sorted(taught), "prediction"))
    found: dict[str, Any] = {
        "taught": len(taught.intersection(id for item in known for id in item.known.ids)),
        "fresh": drawn_after_export(run, others),
        "num_unlearned": num,
    }
    if found["fresh"] and num and len(models) == 2 and outcomes is not None:
        own = difference_without(taught, num, known, outcomes, level)
        found["unlearned"] = StatedEstimate(**stated(own, rounds))
    return found


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


def difference_by(
    run: Run, other: Run, known: Sequence[LabelledRound], level: float, metric: str = ACCURACY
) -> Estimate:
    """Estimate the difference in accuracy, or a metric, of a run's model and another one, from some rounds of the run.

    Raises as :func:`compare`.
    """
    check_comparable(run.spec.model, run.uri, other)
    outcomes = outcomes_of_all(known, run, [other], read_log(run).score)
    if metric == ACCURACY:
        found, _ = _compared(run, [other], [item.known for item in known], outcomes, level)
    else:
        found = _compared_by(metric, run, [other], known, outcomes, level)
    return found.differences[0].difference


def _compared(
    run: Run,
    others: Sequence[Run],
    selections: Sequence[Selection],
    outcomes: Sequence[NDArray[np.float64]],
    level: float,
) -> tuple[SeveralModels, bool]:
    """Return the comparison, and whether predictions from the labels improve it."""
    parameters = parse_parameters(selections[0].method, selections[0].parameters)
    with open_views(run, others, (), parameters) as views:
        said = _predictions(run, others, views)
        if uses_regression(selections):
            index = np.concatenate([part.index for part in selections])
            names = [view.identify(index) if view.size == views[0].size else None for view in views]
            if all(own == other for own, other in pairwise(names)):
                history = histories(read_history(run), len(others))
                found = compare_outcomes(selections, outcomes, level, pools=views, history=history, predictions=said)
                return found, True
    return compare_outcomes(selections, outcomes, level, predictions=said), False


def _compared_by(
    metric: str,
    run: Run,
    others: Sequence[Run],
    known: Sequence[LabelledRound],
    outcomes: Sequence[NDArray[np.float64]],
    level: float,
) -> SeveralModels:
    """Return the comparison of a metric."""
    if parse_metric(metric).is_error:
        raise SpecError(f"--metric {metric} is not compared between models; estimate it for each, or remove it")
    classes, selections = class_names(run), [item.known for item in known]
    if classes is None or not run.spec.model.has_classes:
        raise SpecError(f"--metric {metric} needs the names of the classes; give them in model.classes, or remove it")
    asked = checked_metric(metric, classes)
    truth = np.array([classes.index(name) for item in known for name in item.truth], dtype=np.int64)
    with open_views(run, others, (), parse_parameters(selections[0].method, selections[0].parameters)) as views:
        said = _predictions(run, others, views)
        if said is None:
            raise DataError(f"--metric {metric} needs runs on the same examples in the same order; remove it")
        rows = zip(zip(*outcomes, strict=True), histories(read_history(run), len(others)), said, views, strict=True)
        models = [
            (KnownPool(view, predicted.astype(np.int32), classes), join(selections, own, truth=truth, history=history))
            for own, history, predicted, view in rows
        ]
        return compare_by(asked, models, level)


def _predictions(run: Run, others: Sequence[Run], views: Sequence[View]) -> list[NDArray[np.float64]] | None:
    """Return each model's predictions, (N,), with classes numbered as in the run; None if the orders differ."""
    orders = [[(shard.examples, shard.ids) for shard in own.complete_features().index.shards] for own in (run, *others)]
    if any(order != orders[0] for order in orders) or any(ids is None for _, ids in orders[0]):
        return None
    classes = run.spec.model.classes
    found = [views[0].column("prediction")]
    for other, view in zip(others, views[1:], strict=True):
        said, theirs = view.column("prediction"), other.spec.model.classes
        places = None if classes is None or theirs is None else np.array([classes.index(name) for name in theirs])
        found.append(said if places is None else places[said.astype(np.int64)].astype(np.float64))
    return found
