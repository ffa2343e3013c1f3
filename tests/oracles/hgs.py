"""HGS as Harrold, Gupta and Soffa write it, with sets; and the plain greedy cover it is compared with."""

from collections.abc import Sequence

import numpy as np


def cover(coverage: np.ndarray, lookahead: int | None = None) -> list[int]:
    """Rows that together cover every column that any row covers, in order of choice."""
    unmet = [set(np.flatnonzero(column).tolist()) for column in coverage.T if column.any()]  # the tests of each
    cardinalities = sorted({len(tests) for tests in unmet})
    chosen: list[int] = []
    for place, cardinality in enumerate(cardinalities):
        stop = len(cardinalities) if lookahead is None else place + 1 + lookahead
        while current := [tests for tests in unmet if len(tests) == cardinality]:
            candidates = sorted(set.union(*current))
            best = _select(candidates, unmet, cardinalities[place:stop])
            chosen.append(best)
            unmet = [tests for tests in unmet if best not in tests]
    return chosen


def _select(candidates: Sequence[int], unmet: list[set[int]], cardinalities: list[int]) -> int:
    """SelectTest: most unmet requirements of the first cardinality; of a tie, of the next; at last the first."""
    for cardinality in cardinalities:
        requirements = [tests for tests in unmet if len(tests) == cardinality]
        met = {test: sum(test in tests for tests in requirements) for test in candidates}
        candidates = [test for test in candidates if met[test] == max(met.values())]
        if len(candidates) == 1:
            break
    return candidates[0]


def greedy(coverage: np.ndarray) -> list[int]:
    """Always the row that covers most uncovered columns."""
    unmet, chosen = coverage.any(axis=0), []
    while unmet.any():
        chosen.append(int(np.argmax((coverage & unmet).sum(axis=1))))
        unmet = unmet & ~coverage[chosen[-1]]
    return chosen
