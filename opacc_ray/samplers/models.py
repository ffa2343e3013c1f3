"""Pools of one or several models, checked to hold the same examples as one another and as a selection."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.rounds import Outcome, checked_outcome
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.content import Content, content_of, in_other_order
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.selection import Selection

Pools = Pool | View | Iterable[Pool | View]
"""The pool of one model, or the pools of several models."""


def listed(pool: Pools) -> list[Pool | View]:
    """Return a list of the given pools; :func:`views_of` refuses what is not a pool."""
    return list(pool) if isinstance(pool, Sequence | Iterator) else [pool]  # type: ignore[list-item]


def views_of(pools: Sequence[Pool | View]) -> list[View]:
    """Return the view of each pool; raises SpecError if there is none, one is not a pool, or their sizes differ."""
    views = [view_of(own) for own in pools]
    if not views:
        raise SpecError("no pool is given; give one, or one for each model")
    for number, view in enumerate(views[1:], start=2):
        if view.size != views[0].size:
            raise SpecError(
                f"pool {number} has {view.size} examples and the first has {views[0].size}; give pools of the same "
                "examples in the same order"
            )
    return views


def histories_of(history: History | Sequence[History] | None, num: int) -> list[History]:
    """Return one history for each of ``num`` models; raises SpecError if the type or the number is wrong."""
    if history is None:
        return [NO_HISTORY] * num
    if isinstance(history, History):
        return [history] * num
    given = list(history) if isinstance(history, Sequence) else [history]
    strange = next((own for own in given if not isinstance(own, History)), None)
    if strange is not None:
        raise SpecError(
            f"a history has the type {type(strange).__name__}; give opacc.History(labelled=[(pool, outcomes)])"
        )
    if len(given) != num:
        raise SpecError(f"{len(given)} histories for {num} models: give one for all, or one for each")
    return given


def refuse_no_rounds(previous: Any) -> None:
    """Raise SpecError unless ``previous`` is a list of pairs of a selection and its outcomes."""
    rounds = previous if isinstance(previous, Sequence) else [previous]
    for own in rounds:
        if not (isinstance(own, tuple | list) and len(own) == 2 and isinstance(own[0], Selection)):
            raise SpecError(
                f"previous holds an item of type {type(own).__name__}; give a list with one pair per earlier round: "
                "[(selection, outcome)]"
            )


def rows_of(selection: Selection, outcome: Any, num: int) -> list[Outcome]:
    """Return the outcomes (n,) of each of ``num`` models; raises LabelError unless they fit the selection."""
    if num == 1:
        return [checked_outcome(selection, outcome)]
    if len(outcome) != num:
        raise LabelError(
            f"round {selection.round} has outcomes of {len(outcome)} models instead of {num}: give one row per model"
        )
    return [checked_outcome(selection, row) for row in outcome]


def identify_in_all(views: Sequence[View], chosen: NDArray[np.int64]) -> tuple[str, ...]:
    """Return the ids of the examples ``chosen`` (n,); raises DataError if they differ between the pools."""
    first = views[0].identify(chosen)
    for number, view in enumerate(views[1:], start=2):
        refuse_other_ids(chosen.tolist(), first, "the first pool", view.identify(chosen), f"pool {number}")
    return tuple(first)


def refuse_other_pools(views: Sequence[View], selections: Sequence[Selection]) -> None:
    """Refuse pools other than the one that the selections were drawn from.

    A pool without ids is compared by its size, and by a digest of its columns if the selection has one.

    Raises
    ------
    SpecError
        A pool has another number of examples.
    DataError
        A chosen example has another id in a pool, or a pool without ids is in another order.
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
