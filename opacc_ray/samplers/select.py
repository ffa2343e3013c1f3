"""Choose the examples to label: :func:`select` checks a request and runs a method on a pool.

**The same pool.** A pool that is not the one that a selection was drawn from is refused. A pool without ids has a
digest, by which the same examples in another order are recognised. For each column of floating numbers there are two
sums modulo 2^64, which do not depend on how the pool is cut in parts:

    values = Σ_i h(b_i)        order = Σ_i h(b_i ⊕ h(i))        b_i the bits of value i as a float64, h mixes bits

Two pools with the same ``values`` hold the same numbers, and with the same ``order`` at the same places. Other numbers
are those of another model, for which the labels of a selection may be used as well. Where a pool has no such column,
the first neurons of its layers are used. h is that of G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014: the digest is a guard against mistakes, not against forgery.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.parts.view import Pools, View, views_of
from opacc_ray.pool import COLUMNS, LAYERS, NO_HISTORY, History, Pool, histories_of
from opacc_ray.samplers import Previous, Task, find_method, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, OtherModel, Report, unreported
from opacc_ray.samplers.plausibility import contradiction
from opacc_ray.selection import Content, Outcome, Selection, checked_outcome


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
    _check_models(method, task)
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


def _check_models(method: str, task: Task) -> None:
    """Raise SpecError for several models, or a history of one, that the method does not use."""
    if task.others and not task.parameters.serves_several:
        raise SpecError(
            f"method {method!r} chooses for one model; give one pool and compare the other models by its labels, "
            "or use neyman"
        )
    known = any(history is not NO_HISTORY for history in (task.history, *(other.history for other in task.others)))
    if known and not task.parameters.learns_from_history:
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


# -- the pool of a selection ------------------------------------------------------------------------------------

_NEURONS = 16
"""Neurons of a layer that are used."""

_BLOCK = 1 << 12


def content_of(view: View) -> Content:
    """Return the content of a pool; empty if it has ids of its own, or no floating numbers."""
    if view.named:
        return {}
    for names in (COLUMNS, LAYERS):
        found: Content = {}
        for name in (name for name in names if name in view.fields):
            calls = [(part, part_content, (name, start)) for part, start in enumerate(view.starts[:-1].tolist())]
            values, order = view.parts.total(calls).tolist()
            if values or order:
                found[name] = f"{values:016x}", f"{order:016x}"
        if found:
            return found
    return {}


def in_other_order(own: Content, other: Content) -> list[str]:
    """Return the features that two pools hold in different orders; none if their numbers differ."""
    common = own.keys() & other.keys()
    if any(own[name][0] != other[name][0] for name in common):
        return []
    return sorted(name for name in common if own[name][1] != other[name][1])


def part_content(part: Pool, name: str, start: int) -> NDArray[np.uint64]:
    """Return both sums of a part whose examples begin at ``start``; zeros if the values are not floating numbers."""
    values = getattr(part, name)
    if values.dtype.kind != "f":
        return np.zeros(2, np.uint64)
    columns, sums = values.reshape(len(values), -1)[:, :_NEURONS].T, np.zeros(2, np.uint64)
    salt = _mixed(np.arange(len(columns), dtype=np.uint64))[:, None]  # (neurons, 1)
    for first in range(0, len(values), _BLOCK):
        own = np.ascontiguousarray(columns[:, first : first + _BLOCK], dtype=np.float64)
        bits = own.view(np.uint64) + salt  # (neurons, b)
        places = _mixed(np.arange(start + first, start + first + own.shape[1], dtype=np.uint64))
        sums += [_mixed(mixed).sum(dtype=np.uint64) for mixed in (bits, bits ^ places)]
    return sums


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return h, the output function of SplitMix64."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    return numbers ^ (numbers >> np.uint64(31))


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
