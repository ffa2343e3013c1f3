"""Choose the examples to label: :func:`select` checks a request and runs a method on a pool."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.history import NO_HISTORY, History, histories_of
from opacc_ray.parts.view import Pools, View, views_of
from opacc_ray.samplers import Previous, Task, find_method, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, OtherModel, Report, unreported
from opacc_ray.samplers.plausibility import contradiction
from opacc_ray.samplers.same_pool import content_of, refuse_other_ids, refuse_other_pools
from opacc_ray.selection import Outcome, Selection, checked_outcome


def select(
    pool: Pools,
    method: str = "neyman",
    budget: int | None = None,
    seed: int | np.random.Generator | None = 0,
    *,
    previous: Sequence[tuple[Selection, Outcome | list[Outcome]]] = (),
    history: History | Sequence[History] | None = None,
    progress: Report = unreported,
    **parameters: Any,
) -> Selection:
    """Choose ``budget`` examples of the pool to label, after ``previous`` rounds with outcomes.

    Arguments, facts and errors are those of :func:`opacc_ray.labelled.select`, which also accepts labels.
    """
    sampler, views = find_method(method), views_of(pool)
    view = views[0]
    seed = seed_of(seed)
    labelled, notice = _gather(previous, views)
    histories = histories_of(history, len(views))
    others = tuple(map(OtherModel, views[1:], [own.outcome for own in labelled[1:]], histories[1:]))
    task = Task(budget, parse_parameters(method, parameters), labelled[0], progress, histories[0], others)
    _check_several(method, task)
    _check_history(method, task)
    _check_budget(budget, view.size, len(task.previous.chosen), optional=task.parameters.stops_itself)
    view.need(sampler.needs(task.parameters), method, task.parameters.instead)
    number = 1 + max((selection.round for selection, _ in previous), default=0)
    contents = tuple(filter(None, map(content_of, views)))
    drawn = sampler.draw(view, task, np.random.default_rng([seed, number]))
    return Selection(
        method=method,
        parameters=json.loads(json.dumps(asdict(task.parameters))),  # as a saved selection returns them
        seed=seed,
        pool_size=view.size,
        index=drawn.chosen,
        ids=_identify_in_all(views, drawn.chosen),
        design=drawn.design,
        round=number,
        facts=drawn.facts | notice,
        contents=contents,
    )


def _gather(
    previous: Sequence[tuple[Selection, Outcome | list[Outcome]]], views: Sequence[View]
) -> tuple[list[Previous], dict[str, str]]:
    """Return the labels of earlier rounds for each model, and a notice if those of the first contradict its failures.

    Raises LabelError if outcomes do not fit their selection or the models.
    """
    if not previous:
        return [NO_PREVIOUS] * len(views), {}
    selections = [selection for selection, _ in previous]
    refuse_other_pools(views, selections)
    index = np.concatenate([selection.index for selection in selections])
    rows = list(zip(*(_rows_of(selection, values, len(views)) for selection, values in previous), strict=True))
    found = contradiction(selections, rows[0])
    return [Previous.of(index, np.concatenate(row)) for row in rows], {"notice": found} if found else {}


def _rows_of(selection: Selection, outcome: Any, num: int) -> list[Outcome]:
    """Return the outcomes (n,) of each of ``num`` models; raises LabelError unless they fit the selection."""
    if num == 1:
        return [checked_outcome(selection, outcome)]
    if len(outcome) != num:
        raise LabelError(
            f"round {selection.round} has outcomes of {len(outcome)} models instead of {num}: give one row per model"
        )
    return [checked_outcome(selection, row) for row in outcome]


def _identify_in_all(views: Sequence[View], chosen: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the ids of the examples ``chosen`` (n,); raises DataError if they differ between the pools."""
    first = views[0].identify(chosen)
    for number, view in enumerate(views[1:], start=2):
        refuse_other_ids(chosen.tolist(), first, "the first pool", view.identify(chosen), f"pool {number}")
    return tuple(first)


# -- checks of a request ----------------------------------------------------------------------------------------


def _check_several(method: str, task: Task) -> None:
    if not task.others:
        return
    if not task.parameters.serves_several:
        raise SpecError(
            f"method {method!r} chooses for one model; give one pool and compare the other models by its labels, "
            "or use neyman"
        )


def _check_history(method: str, task: Task) -> None:
    if all(history is NO_HISTORY for history in (task.history, *(other.history for other in task.others))):
        return
    if not task.parameters.learns_from_history:
        raise SpecError(f"method {method!r} does not use a history; remove it, or use neyman")


def seed_of(seed: Any) -> int:
    """Return a seed as a whole number: drawn by a generator, or at random for None; SpecError for anything else."""
    if seed is None or isinstance(seed, np.random.Generator):
        return int((seed or np.random.default_rng()).integers(2**32))  # which every library takes
    if not _is_whole(seed) or seed < 0:
        raise SpecError(f"seed={seed!r}: give a whole number of at least 0, None or a numpy.random.Generator")
    return int(seed)


def _check_budget(budget: int | None, pool_size: int, num_labelled: int, *, optional: bool) -> None:
    left = pool_size - num_labelled
    if not left:
        raise LabelError(
            f"all {pool_size} examples of the pool are labelled, so there is none left to choose; estimate the "
            "accuracy with `opacc estimate` or opacc.estimate"
        )
    if budget is None:
        if optional:
            return
        raise SpecError("no budget is given; set the number of labels, such as budget=100 (--budget 100)")
    if not _is_whole(budget) or budget < 1:
        raise SpecError(f"budget={budget!r}: give a whole number of labels, at least 1")
    if budget > left:
        already = f", of which {num_labelled} are labelled" if num_labelled else ""
        raise SpecError(
            f"budget={budget} is more than the pool has: {pool_size} examples{already}; give at most {left}"
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
