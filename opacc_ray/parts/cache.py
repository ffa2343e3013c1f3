"""What the parts of a pool keep between two calls: costly to make, small enough to hold, safe to lose.

    kept = Kept(view.parts, "codes", key, make, recipes)   # make(part, *recipes[part]), run where the part lives
    kept.call([(part, function, arguments), ...])          # function(what that part keeps, *arguments)

What is kept is a pure function of its part and the recipe, and ``key`` names the recipe. First the parts are asked by
key alone. One that does not keep the value, as it was restarted or never had it, says so, is sent the recipe and makes
it; the answer is the same. A part keeps one value per name, in its own ``kept``, so that none outlives it.

What was made of the whole pool has no recipe for one part. A function that misses it raises :class:`Forgotten`, and all
of it is made again:

    result = repeat_if_forgotten(views, work)               # work() is pure, and may be done again from its beginning
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import OpaccError
from opacc_ray.parts.view import Call, Parts, View
from opacc_ray.pool import Pool

Result = TypeVar("Result")

TRIES = 5
"""Times that work is done whose parts forget; an actor is started again less often."""


class Forgotten(OpaccError):
    """A part no longer keeps what it was to use."""


def kept_name(name: str, key: str) -> str:
    """A name for what a part keeps beside others of its kind; keys that differ in their last word alone share one."""
    return f"{name} {key.rpartition(' ')[0]}"


def part_keep(part: Pool, name: str, key: str, value: Any) -> None:
    part.kept[name] = key, value


def part_recall(part: Pool, name: str, key: str) -> Any:
    """What a part keeps; raises Forgotten if it keeps nothing under this name and key."""
    held, value = part.kept.get(name, (None, None))
    if held != key:
        raise Forgotten(f"a part of the pool has lost its {name} again and again; free some memory and try again")
    return value


def repeat_if_forgotten(views: Sequence[View], work: Callable[[], Result]) -> Result:
    """``work()`` on the views, again from its beginning where a part had forgotten something.

    Work of other threads on one of the views waits, for the parts would keep its values in the place of these.
    """
    with ExitStack() as held:
        for view in sorted(views, key=id):  # the same order in all threads: none waits for one that waits for it
            held.enter_context(view.lock)
        for _ in range(TRIES - 1):
            try:
                return work()
            except Forgotten:
                for view in views:
                    view.forget()
        return work()


class _Answer(Enum):
    FORGOTTEN = "the part keeps nothing under this name and key"


class Kept:
    """One value per part; made at the first call.

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
        self._label = name, key
        self._make = make
        self._recipes = recipes

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """``function(kept, *arguments)`` for each (part, function, arguments), in their order."""
        answers = self._parts.call([(part, part_use, (self._label, *rest)) for part, *rest in calls])
        forgotten = [place for place, answer in enumerate(answers) if answer is _Answer.FORGOTTEN]
        if forgotten:
            made = self._parts.call([self._with_recipe(*calls[place]) for place in forgotten])
            for place, answer in zip(forgotten, made, strict=True):
                answers[place] = answer
        return answers

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """``function(kept, *arguments[part])`` for every part, in the order of the pool."""
        return self.call([(part, function, own) for part, own in enumerate(arguments)])

    def _with_recipe(self, part: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Call:
        return part, part_make_then_use, (self._make, self._recipes[part], self._label, function, arguments)


def key_of(*items: NDArray[Any] | str | int) -> str:
    """A name for the content of arrays, strings and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        array = np.asarray(item)
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def part_use(part: Pool, label: tuple[str, str], function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    name, key = label
    held, value = part.kept.get(name, (None, None))
    return function(value, *arguments) if held == key else _Answer.FORGOTTEN


def part_make_then_use(
    part: Pool,
    make: Callable[..., Any],
    recipe: tuple[Any, ...],
    label: tuple[str, str],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Any:
    name, key = label
    held, value = part.kept.get(name, (None, None))
    if held != key:
        value = make(part, *recipe)
        part.kept[name] = key, value
    return function(value, *arguments)
