"""Refuse a pool that is not the one that a selection was drawn from.

A pool without ids has a digest, by which the same examples in another order are recognised. For each column of floating
numbers there are two sums modulo 2^64, which do not depend on how the pool is cut in parts:

    values = Σ_i h(b_i)        order = Σ_i h(b_i ⊕ h(i))        b_i the bits of value i as a float64, h mixes bits

Two pools with the same ``values`` hold the same numbers, and with the same ``order`` at the same places. Other numbers
are those of another model, for which the labels of a selection may be used as well. Where a pool has no such column,
the first neurons of its layers are used. h is that of G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014: the digest is a guard against mistakes, not against forgery.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.view import View
from opacc_ray.pool import COLUMNS, LAYERS, Pool
from opacc_ray.selection import Selection

Content = dict[str, tuple[str, str]]
"""Feature -> digests of its values and of their order, in hexadecimal."""

_NEURONS = 16
"""Neurons of a layer that are used."""

_BLOCK = 1 << 12


def content_of(view: View) -> Content:
    """Return the content of a pool; empty if it has ids of its own, or no floating numbers."""
    if view.named:
        return {}
    for names in (COLUMNS, LAYERS):
        sums = {name: _sums(view, name) for name in names if name in view.fields}
        if found := {name: (f"{v:016x}", f"{o:016x}") for name, (v, o) in sums.items() if v or o}:
            return found
    return {}


def in_other_order(own: Content, other: Content) -> list[str]:
    """Return the features that two pools hold in different orders; none if their numbers differ."""
    common = own.keys() & other.keys()
    if any(own[name][0] != other[name][0] for name in common):
        return []
    return sorted(name for name in common if own[name][1] != other[name][1])


def _sums(view: View, name: str) -> list[int]:
    calls = [(part, part_content, (name, start)) for part, start in enumerate(view.starts[:-1].tolist())]
    return list(view.parts.total(calls).tolist())


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
