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


class _Answer(Enum):
    MISSING = "the part keeps no value under this name and key"


class Kept(NamedTuple):
    """One value per part, made at the first call."""

    parts: Parts  # that keep the values
    name: str  # of the value
    key: str  # of the recipe
    make: Callable[..., Any]  # from a part and its recipe to its value
    recipes: Sequence[tuple[Any, ...]]  # arguments of ``make``, one tuple for each part

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """Return ``function(kept, *arguments)`` for each (part, function, arguments), in their order."""
        asked: list[Call] = [(part, part_use, (self.name, self.key, *rest)) for part, *rest in calls]
        answers = self.parts.call(asked)
        missing = [place for place, answer in enumerate(answers) if answer is _Answer.MISSING]
        if missing:
            again = (asked[place] for place in missing)
            made = [(part, use, (*rest, self.make, self.recipes[part])) for part, use, rest in again]
            for place, answer in zip(missing, self.parts.call(made), strict=True):
                answers[place] = answer
        return answers

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return ``function(kept, *arguments[part])`` for every part, in the order of the pool."""
        return self.call([(part, function, own) for part, own in enumerate(arguments)])


def key_of(*items: NDArray[Any] | str | int) -> str:
    """Return a digest of the content of arrays, strings and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        array = np.asarray(item)
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def part_use(
    part: Pool,
    name: str,
    key: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    make: Callable[..., Any] | None = None,
    recipe: tuple[Any, ...] = (),
) -> Any:
    """Return ``function(kept, *arguments)``; where the value is missing, ``make`` it, or say so without ``make``."""
    known, value = part.kept.get(name, (None, None))
    if known != key:
        if make is None:
            return _Answer.MISSING
        value = make(part, *recipe)
        part.kept[name] = key, value
    return function(value, *arguments)
