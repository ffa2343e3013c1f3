"""Choose the examples to label: :func:`select` checks a request and runs a method on a pool.

With independent replicates, the method chooses in several random parts of the pool, in each as if it were the whole
pool. Their spread gives a variance to methods that have none: see :mod:`opacc_ray.designs.replicates`.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.replicates import Replicates
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.plausibility import contradiction
from opacc_ray.estimators.rounds import Outcome, checked_outcome
from opacc_ray.history import NO_HISTORY, History, histories_of
from opacc_ray.parts.content import content_of
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import Pools, View, views_of
from opacc_ray.samplers import Draw, Previous, Sampler, Task, find_method, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, OtherModel, Report, unreported
from opacc_ray.samplers.estimate import refuse_other_ids, refuse_other_pools
from opacc_ray.selection import Selection

Choose = Callable[[View, int | None, int], Draw]
"""Called with part r of the pool, its share of the budget and r; returns the examples chosen there."""


def select(
    pool: Pools,
    method: str = "neyman",
    budget: int | None = None,
    seed: int = 0,
    *,
    previous: Sequence[tuple[Selection, Outcome]] = (),
    replicates: int | None = None,
    history: History | Sequence[History] | None = None,
    progress: Report = unreported,
    **parameters: Any,
) -> Selection:
    """Choose ``budget`` examples of the pool to label, after ``previous`` rounds with outcomes.

    Arguments, facts and errors are those of :func:`opacc_ray.labelled.select`, which also accepts labels.
    """
    sampler, views = find_method(method), views_of(pool)
    view = views[0]
    _check_seed(seed)
    labelled, notice = _gather(previous, views)
    histories = histories_of(history, len(views))
    others = tuple(map(OtherModel, views[1:], [own.outcome for own in labelled[1:]], histories[1:]))
    task = Task(budget, parse_parameters(method, parameters), labelled[0], progress, histories[0], others)
    _check_several(method, task, replicates)
    _check_history(method, task, replicates)
    _check_budget(budget, view.size, len(task.previous.chosen), optional=task.parameters.stops_itself)
    view.need(sampler.needs(task.parameters), method, task.parameters.instead)
    number = 1 + max((selection.round for selection, _ in previous), default=0)
    contents = tuple(filter(None, map(content_of, views)))
    if replicates is None:
        drawn = sampler.draw(view, task, np.random.default_rng([int(seed), number]))
    else:
        drawn = _replicated(sampler, view, task, replicates, [int(seed), number])
    return Selection(
        method=method,
        parameters=json.loads(json.dumps(asdict(task.parameters))),  # as a saved selection returns them
        seed=int(seed),
        pool_size=view.size,
        index=drawn.chosen,
        ids=_identify_in_all(views, drawn.chosen),
        design=drawn.design,
        round=number,
        facts=drawn.facts | notice,
        contents=contents,
    )


def _gather(
    previous: Sequence[tuple[Selection, Outcome]], views: Sequence[View]
) -> tuple[list[Previous], dict[str, str]]:
    """Return the labels of earlier rounds for each model, and a notice if those of the first contradict its failures.

    Raises SpecError for what is no list of pairs, LabelError if outcomes do not fit their selection or the models.
    """
    for own in previous if isinstance(previous, Sequence) else [previous]:
        if not (isinstance(own, tuple | list) and len(own) == 2 and isinstance(own[0], Selection)):
            raise SpecError(
                f"previous holds an item of type {type(own).__name__}; give a list with one pair per earlier round: "
                "[(selection, outcome)]"
            )
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


def _check_several(method: str, task: Task, replicates: int | None) -> None:
    if not task.others:
        return
    if not task.parameters.serves_several:
        raise SpecError(
            f"method {method!r} chooses for one model; give one pool and compare the other models by its labels, "
            "or use neyman"
        )
    if replicates is not None:
        raise SpecError("`replicates` cannot be combined with several pools; give one pool, or remove replicates")


def _check_history(method: str, task: Task, replicates: int | None) -> None:
    if all(history is NO_HISTORY for history in (task.history, *(other.history for other in task.others))):
        return
    if not task.parameters.learns_from_history:
        raise SpecError(f"method {method!r} does not use a history; remove it, or use neyman")
    if replicates is not None:
        raise SpecError("`replicates` cannot be combined with `history`; remove one of them")


def _check_seed(seed: int) -> None:
    if not _is_whole(seed) or seed < 0:
        raise SpecError(f"seed={seed!r}: give a whole number, 0 or more")


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


# -- replicates -------------------------------------------------------------------------------------------------


def _replicated(sampler: Sampler, view: View, task: Task, num: int, seed: Sequence[int]) -> Draw:
    """Draw from ``num`` parts of the pool; progress counts the steps of all of them."""
    done = 0

    def choose(part: View, share: int | None, r: int) -> Draw:
        nonlocal done
        own = Task(share, task.parameters, NO_PREVIOUS, lambda here, _: task.progress(done + here, task.budget))
        drawn = sampler.draw(part, own, np.random.default_rng([*seed, 1 + r]))
        done += len(drawn.chosen)
        return drawn

    return replicate(view, num, task.budget, task.previous.chosen, np.random.default_rng([*seed, 0]), choose)


def replicate(
    view: View, num: int, budget: int | None, taken: NDArray[np.int64], rng: np.random.Generator, choose: Choose
) -> Draw:
    """Join the samples that ``choose`` draws from each of ``num`` random parts of the pool.

    Parameters
    ----------
    budget : labels of all replicates together; None for a method that stops by itself
    taken : examples labelled before, which are left out
    choose : must draw from a generator that depends on r

    Returns the examples of all replicates in turn, with the facts of each. Raises SpecError for fewer than two
    replicates, or more than examples or labels.
    """
    free = np.delete(np.arange(view.size), taken)
    if not _is_whole(num) or not 2 <= num <= len(free):
        raise SpecError(
            f"replicates={num!r}: give a whole number from 2 to {len(free)}, the number of unlabelled examples"
        )
    if budget is not None and budget < num:
        raise SpecError(f"budget={budget} over replicates={num}: every replicate needs a label; give at least {num}")
    parts = [np.sort(part) for part in np.array_split(rng.permutation(free), num)]
    shares = [None if budget is None else budget // num + (r < budget % num) for r in range(num)]
    draws = [choose(subset(view, part), share, r) for r, (part, share) in enumerate(zip(parts, shares, strict=True))]
    number = np.repeat(np.arange(num), [len(drawn.chosen) for drawn in draws])
    place = np.concatenate([np.arange(len(drawn.chosen)) for drawn in draws])
    order = np.lexsort((number, place))  # if labelling stops early, all replicates have labels
    index = np.concatenate([part[drawn.chosen] for part, drawn in zip(parts, draws, strict=True)])
    sizes = np.array([len(part) for part in parts])
    design = Replicates(number[order], sizes, tuple(drawn.design for drawn in draws))
    facts = [drawn.facts for drawn in draws]
    return Draw(index[order], design, {"replicates": facts} if any(facts) else {})
