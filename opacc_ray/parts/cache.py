"""What the parts of a pool keep between two calls: costly to make, small enough to hold, safe to lose.

    kept = Kept(view, "codes", key, make, *recipe)      # make(part, *recipe), run where the part lives
    kept.map(function, arguments)                       # function(what that part keeps, *its arguments)

What is kept is a pure function of its part and the recipe, and ``key`` names the recipe. So an actor that was restarted
has only forgotten: it says so, is sent the recipe again, and the answer is the same. A part keeps one value per name,
and none outlives its part.
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.view import View
from opacc_ray.pool import Pool


class _Answer(Enum):
    FORGOTTEN = "the part keeps nothing under this name and key"


_KEPT: WeakKeyDictionary[Pool, dict[str, tuple[str, Any]]] = WeakKeyDictionary()


class Kept:
    """One value per part of ``view``; made at the first call."""

    def __init__(self, view: View, name: str, key: str, make: Callable[..., Any], *recipe: Any) -> None:
        self._parts = view.parts
        self._name = name
        self._key = key
        self._recipe = (make, recipe)

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """``function(kept, *arguments[part])`` for each part, in the order of the pool."""
        work = [(self._name, self._key, function, own) for own in arguments]
        answers = self._parts.call([(part, _use, item) for part, item in enumerate(work)])
        lost = [part for part, answer in enumerate(answers) if answer is _Answer.FORGOTTEN]
        if lost:
            made = self._parts.call([(part, _make_then_use, (self._recipe, *work[part])) for part in lost])
            for part, answer in zip(lost, made, strict=True):
                answers[part] = answer
        return answers


def key_of(*items: NDArray[Any] | str | int) -> str:
    """A name for the content of arrays, strings and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        array = np.asarray(item)
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def _use(part: Pool, name: str, key: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    held, value = _KEPT.get(part, {}).get(name, (None, None))
    return function(value, *arguments) if held == key else _Answer.FORGOTTEN


def _make_then_use(
    part: Pool,
    recipe: tuple[Callable[..., Any], tuple[Any, ...]],
    name: str,
    key: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Any:
    make, ingredients = recipe
    value = make(part, *ingredients)
    _KEPT.setdefault(part, {})[name] = (key, value)
    return function(value, *arguments)
