"""Roots: SciPy's, bit for bit, after the same calls."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from opacc_ray.estimators.roots import bisected, root

FUNCTIONS: dict[str, Callable[[float, float], float]] = {
    "cubic": lambda x, a: (x - a) * ((x - a) ** 2 + 1e-3),
    "root": lambda x, a: math.copysign(math.sqrt(abs(x - a)), x - a),
    "steep": lambda x, a: math.atan(1e6 * (x - a)),
    "tail": lambda x, a: math.exp(-3 * x) - math.exp(-3 * a),
    "jump": lambda x, a: x - a if x > a + 1e-3 else -1.0,
    "line": lambda x, a: a - x,
    "waves": lambda x, a: (x - a) * (1.1 + math.sin(40 * x)),
}


def called(find: Callable[..., float], function: Callable[[float], float], *given: Any) -> tuple[float, list[float]]:
    """The root that is found, and where it was looked for."""
    seen: list[float] = []

    def noted(x: float) -> float:
        seen.append(x)
        return function(x)

    return find(noted, *given), seen


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_root_is_scipys_after_the_same_calls(name: str) -> None:
    rng = np.random.default_rng(0)
    for tolerance in (1e-15, 1e-9, 1e-3):
        for low, high, share in zip(rng.uniform(-20, 0, 30), rng.uniform(0.1, 30, 30), rng.random(30), strict=True):
            place = low + (high - low) * share

            def function(x: float, place: float = place) -> float:
                return FUNCTIONS[name](x, place)

            for found, expected in ((root, optimize.brentq), (bisected, optimize.bisect)):
                theirs = called(lambda f, a, b, t, find=expected: find(f, a, b, xtol=t), function, low, high, tolerance)
                assert called(found, function, low, high, tolerance) == theirs


@pytest.mark.parametrize("find", [root, bisected])
@pytest.mark.parametrize("end", [0.0, 1.0])
def test_an_end_may_be_the_root(find: Callable[..., float], end: float) -> None:
    assert find(lambda x: x - end, 0.0, 1.0, 1e-9) == end


def test_bisection_bears_a_function_that_is_infinite_on_one_side() -> None:
    assert bisected(lambda x: math.inf if x < 0.3 else 0.4 - x, 0.0, 1.0, 1e-15) == pytest.approx(0.4, abs=1e-15)


def test_a_function_without_a_slope_at_its_root_is_refused_and_not_guessed() -> None:
    with pytest.raises(ArithmeticError, match=r"no root was found between -3.0 and 2.0 in 100 steps"):
        root(lambda x: x**9, -3.0, 2.0, 1e-15)
