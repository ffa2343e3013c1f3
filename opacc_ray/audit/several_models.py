"""Several models on one pool: their runs side by side, the labels that serve all of them, and their comparison."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.comparison_documents import ComparedModel, ComparedPair, ModelComparison
from opacc_ray.audit.history import read_history, refuse_twice
from opacc_ray.audit.results import basis_of, sample_of, stated, with_labels
from opacc_ray.errors import DataError, SpecError, counted
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.several import SeveralModels
from opacc_ray.extract.feature_set import Complete
from opacc_ray.extract.ids import digest_of
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.labels.labelled_rounds import LabelledRound, outcomes_of_another, read_rounds
from opacc_ray.labels.log import read_log
from opacc_ray.labels.outcomes import Score
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.pools import planned_ids
from opacc_ray.parts.view import View
from opacc_ray.runs import feature_store
from opacc_ray.runs.documents import StatedEstimate
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import MethodParameters
from opacc_ray.samplers.compare import compare as compare_outcomes
from opacc_ray.samplers.models import refuse_other_ids
from opacc_ray.samplers.neyman.regression import uses_regression
from opacc_ray.samplers.select import parse_parameters
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec, Spec


def compare(
    run: Run,
    *others: Run,
    level: float = 0.95,
    partial: bool = False,
    conflict: str | None = None,
    score: Score | None = None,
) -> ModelComparison:
    """State the accuracy of a run's model beside that of others on the same pool, by the labels of the run.

    The other runs need features only: what their models say of the labelled examples is found by their ids. Where the
    rounds learn from all labels and the pools hold the same examples in the same order, they do so for each model.
    Nothing is written.

    Raises
    ------
    LabelError
        As :func:`opacc_ray.audit.results.estimate`.
    SpecError
        The models have different tasks or classes.
    DataError
        Another run lacks a labelled example.
    """
    for other in others:
        check_comparable(run.spec.model, run.uri, other)
    score = score or read_log(run).score
    rounds = read_rounds(run, conflict=conflict, score=score)
    known = with_labels(run, rounds, partial)
    outcomes = outcomes_of_all(known, run, others, score)
    found, predicted = _compared(run, others, sample_of(known)[0], outcomes, level)
    uris = [run.uri, *(other.uri for other in others)]

    def statement(index: int) -> StatedEstimate:
        return StatedEstimate(**stated(found.models[index], rounds))

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
        **basis_of(run, rounds),
        **pairs[0].model_dump(exclude={"first", "second"}),
        other=others[0].uri,
        same_listing=all(run.header.pool.digest == other.header.pool.digest for other in others),
        predicted=predicted,
        first=statement(0),
        second=statement(1),
        models=[ComparedModel(run=uri, accuracy=statement(m), best=found.best[m]) for m, uri in enumerate(uris)],
        differences=pairs,
    )


def difference_by(run: Run, other: Run, known: Sequence[LabelledRound], level: float) -> Estimate:
    """By how much the accuracy of a run's model is above that of another one, by some rounds of the run.

    Raises
    ------
    SpecError, DataError
        As :func:`compare`.
    """
    check_comparable(run.spec.model, run.uri, other)
    outcomes = outcomes_of_all(known, run, [other], read_log(run).score)
    return _compared(run, [other], sample_of(known)[0], outcomes, level)[0].differences[0].difference


def _compared(
    run: Run,
    others: Sequence[Run],
    selections: Sequence[Selection],
    outcomes: Sequence[NDArray[np.float64]],
    level: float,
) -> tuple[SeveralModels, bool]:
    """The comparison, and whether labels predict what is not labelled, for each model."""
    parameters = parse_parameters(selections[0].method, selections[0].parameters)
    with open_views(run, others, (), parameters) as views:
        said = _predictions(run, others, views)
        if uses_regression(selections):
            index = np.concatenate([part.index for part in selections])
            names = [view.identify(index) if view.size == views[0].size else None for view in views]
            if all(own == other for own, other in pairwise(names)):
                history = histories_with(read_history(run), len(others))
                found = compare_outcomes(selections, outcomes, level, pools=views, history=history, predictions=said)
                return found, True
    return compare_outcomes(selections, outcomes, level, predictions=said), False


def _predictions(run: Run, others: Sequence[Run], views: Sequence[View]) -> list[NDArray[np.float64]] | None:
    """What each model says of the pool, (N,), classes by their places in the run; None if the pools differ in order."""
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


def outcomes_of_all(
    known: Sequence[LabelledRound], run: Run, others: Sequence[Run], score: Score
) -> list[NDArray[np.float64]]:
    """How every model did on the labelled examples: (models, n_t) of each round, the run's own model first.

    Raises
    ------
    DataError
        Another run lacks a labelled example.
    """
    ids = [name for item in known for name in item.known.ids]
    by_model: list[list[Outcome]] = [[item.outcome for item in known]]
    for other in others:
        predictions = feature_store.find_predictions(other, ids)
        by_model.append(outcomes_of_another(known, other.spec.model, predictions, score))
    return [np.array(rows) for rows in zip(*by_model, strict=True)]


@contextmanager
def open_views(
    run: Run, others: Sequence[Run], needs: Sequence[str], parameters: MethodParameters
) -> Iterator[list[View]]:
    """The features that a method reads, of the run's model and of the others, as :func:`feature_store.open_view`."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(feature_store.open_view(own, needs, parameters.optional_features, parameters.instead))
            for own in (run, *others)
        ]


def histories_with(own: History, num_others: int) -> list[History]:
    """The history of each model: what a run knows of its own, and of others what it knows of the pool alone."""
    return [own, *[own if own is NO_HISTORY else History(prior=own.prior)] * num_others]


def served_with(run: Run, parameters: MethodParameters) -> list[Run]:
    """The runs of the other models that a run's labels are to serve, by a method with these parameters.

    Raises
    ------
    DataError
        There is no such run.
    SpecError
        Its model has another task or other classes, or its pool another size.
    """
    if not parameters.serves_several:
        return []
    others = _open_others(run.spec, run.uri)
    for other in others:
        own, theirs = run.read_index(), other.read_index()
        if own is not None and theirs is not None and own.num_examples != theirs.num_examples:
            raise _another_size(other, theirs.num_examples, run.uri, own.num_examples)
    return others


def _another_size(other: Run, size: int, place: str, own_size: int) -> SpecError:
    return SpecError(
        f"{other.uri} holds {size} examples and {place} {own_size}; give runs on the same pool in sample.models"
    )


def check_models(spec: Spec, plan: Plan | None) -> str:
    """What the labels are to serve beside the spec's own model, before that one is extracted.

    Raises
    ------
    DataError
        There is no such run, its features are not complete, or the listing of the pool has another order.
    SpecError
        Its model has another task or other classes, or its pool another size than ``plan``; or it is named twice.
    """
    others = _open_others(spec, "the spec")
    refuse_twice("sample.models", [other.uri for other in others])
    for number, other in enumerate(others, start=2):
        there = other.read_features()
        if there is None:
            raise DataError(f"the features of {other.uri} are not complete; run its spec again, then this one")
        if plan is not None and plan.num_examples is not None:
            _check_size(spec, plan.num_examples, other, there.index.num_examples)
            if plan.num_examples == there.index.num_examples:
                _check_order(spec, plan, there, number)
    return f"{counted(len(others), 'other model')} beside the spec's own" if others else "the spec's own"


def _check_size(spec: Spec, planned: int, other: Run, size: int) -> None:
    """Raise SpecError if the features to come cannot be of ``size`` examples.

    They are of all ``planned`` ones, or of fewer where ``extract.on_bad_item`` leaves bad items out.
    """
    if size > planned or (size < planned and spec.extract.on_bad_item == "error"):
        raise _another_size(other, size, spec.pool.uri, planned)


def _check_order(spec: Spec, plan: Plan, there: Complete, number: int) -> None:
    """Raise DataError if pool ``number`` has another order than the listing, where that tells the ids.

    Ids are read where their digest in the index differs, or is missing.
    """
    planned = [planned_ids(spec.pool.format, shard) for shard in plan.shards]
    own = [name for names in planned if names is not None for name in names]
    if len(own) < there.index.num_examples:
        return
    start = 0
    for part, shard in enumerate(shard for shard in there.index.shards if shard.examples):
        places = range(start, start + shard.examples)
        start = places.stop
        ids = own[places.start : places.stop]
        if shard.ids != digest_of(ids):
            refuse_other_ids(places, ids, "the first pool", there.features.ids(part), f"pool {number}")


def _open_others(spec: Spec, place: str) -> list[Run]:
    others = [Run.open(uri) for uri in spec.sample.models or ()]
    for other in others:
        check_comparable(spec.model, place, other)
    return others


def check_comparable(own: ModelSpec, place: str, other: Run) -> None:
    """Raise SpecError unless the model of ``place`` and that of another run answer the same question alike."""
    theirs = other.spec.model
    if own.task != theirs.task:
        raise SpecError(f"{place} is a {own.task} and {other.uri} a {theirs.task}; give runs with the same task")
    if own.task == "regression" or (own.classes is None and theirs.classes is None):
        return
    if own.classes is None or theirs.classes is None:
        nameless = place if own.classes is None else other.uri
        raise SpecError(
            f"{nameless} does not name its classes, and the other run does; run its spec with model.classes"
        )
    for names, uri, known, rest in ((own, place, theirs, other.uri), (theirs, other.uri, own, place)):
        strange = next((name for name in names.classes or () if name not in (known.classes or ())), None)
        if strange is not None:
            near = get_close_matches(strange, known.classes or (), 1, cutoff=0.0)
            raise SpecError(
                f"{strange!r} is a class of {uri} and not of {rest}, where {near[0]!r} comes nearest; "
                "give runs whose models tell the same classes apart, in whatever order"
            )
