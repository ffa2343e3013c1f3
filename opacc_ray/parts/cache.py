"""Cache of what the parts of a pool make of their matrices: expensive to make, small enough to hold, safe to lose.

    kept = Kept(view.parts, "codes", key, make, recipes)   # make(part, *recipes[part]), run where the part is
    kept.call([(part, function, arguments), ...])          # function(what that part keeps, *arguments)

What is kept is a pure function of its part and the recipe, and ``key`` identifies the recipe. The parts are first asked
by key alone. A part without the value, because it was restarted or never had it, is then sent the recipe and makes it;
the answer is the same. A part keeps one value per name.
"""

import hashlib
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.view import Call, Parts
from opacc_ray.pool import Pool


class _Label(NamedTuple):
    """What identifies a value that parts keep."""

    name: str
    key: str


class _Answer(Enum):
    MISSING = "the part keeps no value under this label"


class Kept:
    """One value per part, made at the first call.

    Parameters
    ----------
    parts : that keep the values
    name, key : of the value, and of the recipe
    make : from a part and its recipe to its value
    recipes : arguments of ``make``, one tuple for each part
    """

    def __init__(
        self, parts: Parts, name: str, key: str, make: Callable[..., Any], recipes: Sequence[tuple[Any, ...]]
    ) -> None:
        self._parts = parts
        self._label = _Label(name, key)
        self._make = make
        self._recipes = recipes

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """Return ``function(kept, *arguments)`` for each (part, function, arguments), in their order."""
        answers = self._parts.call([(part, part_use, (self._label, *rest)) for part, *rest in calls])
        missing = [place for place, answer in enumerate(answers) if answer is _Answer.MISSING]
        if missing:
            made = self._parts.call([self._with_recipe(*calls[place]) for place in missing])
            for place, answer in zip(missing, made, strict=True):
                answers[place] = answer
        return answers

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return ``function(kept, *arguments[part])`` for every part, in the order of the pool."""
        return self.call([(part, function, own) for part, own in enumerate(arguments)])

    def _with_recipe(self, part: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Call:
        return part, part_make_then_use, (self._make, self._recipes[part], self._label, function, arguments)


def key_of(*items: NDArray[Any] | str | int) -> str:
    """Return a digest of the content of arrays, strings and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        array = np.asarray(item)
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def part_use(part: Pool, label: _Label, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return ``function(kept, *arguments)``, or that the value is missing."""
    key, value = part.kept.get(label.name, (None, None))
    return function(value, *arguments) if key == label.key else _Answer.MISSING


def part_make_then_use(
    part: Pool,
    make: Callable[..., Any],
    recipe: tuple[Any, ...],
    label: _Label,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Any:
    """Make the value unless the part keeps it, and return ``function(kept, *arguments)``."""
    key, value = part.kept.get(label.name, (None, None))
    if key != label.key:
        value = make(part, *recipe)
        part.kept[label.name] = label.key, value
    return function(value, *arguments)
