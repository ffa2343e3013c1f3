"""Audit several models on one pool with the labels of one run."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.prior_knowledge import refuse_twice
from opacc_ray.errors import DataError, SpecError, counted
from opacc_ray.extract.feature_set import Complete
from opacc_ray.extract.shards import digest_of
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.labels.label_log import Score, read_log
from opacc_ray.labels.labelled_rounds import LabelledRound, outcomes_of_another
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.pools import planned_ids
from opacc_ray.parts.view import View
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import MethodParameters
from opacc_ray.samplers.select import refuse_other_ids
from opacc_ray.selection import Outcome
from opacc_ray.spec import ModelSpec, Spec


def outcomes_of_all(
    known: Sequence[LabelledRound], run: Run, others: Sequence[Run], score: Score
) -> list[NDArray[np.float64]]:
    """Return the outcomes of every model on the labelled examples, (models, n_t) of each round, the run's first.

    Raises DataError if another run lacks a labelled example.
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
    """Open the features for a method, of the run's model and of the others, as :func:`feature_store.open_view`."""
    with ExitStack() as opened:
        yield [
            opened.enter_context(feature_store.open_view(own, needs, parameters.optional_features, parameters.instead))
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
    outcomes = outcomes_of_all(known, run, others, read_log(run).score) if known else []
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
    for names, uri, known, rest in ((mine, place, others, other.uri), (others, other.uri, mine, place)):
        strange = next((name for name in names if name not in known), None)
        if strange is not None:
            near = get_close_matches(strange, known, 1, cutoff=0.0)
            raise SpecError(
                f"{strange!r} is a class of {uri} and not of {rest}, where {near[0]!r} is nearest; "
                "give runs whose models have the same classes, in any order"
            )
