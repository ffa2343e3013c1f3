"""GBS: gradient-based sampling, strata chosen by what the labels so far say.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584.

The pool is cut in ten strata by 1-D k-means of the belief that an example fails (:mod:`opacc_ray.samplers.auxiliary`).
The next example comes from the stratum where it lowers the variance of the estimate most,

    argmax_h P_h² · θ_h · (1 - θ_h) / n_h²        P_h = N_h / N, n_h labels so far, θ_h their share of failures,

and the estimator is Σ_h P_h · mean(y | stratum h).

Changed. The original reads each outcome before it chooses the next example. Labels from people come back in batches, so
here θ_h is what earlier rounds say (``previous``) and n_h counts the batch as it grows. One batch alone is a stratified
sample in proportion to the strata; from the second on, labels go where outcomes vary.

Corrected. The original starts the count of labels of every stratum at 1, so failures in a stratum with few labels are
underestimated, uses one smoothed rate both to choose and to estimate, and may draw an example again. Here the smoothed
rate (failures + 1)/(n_h + 2) serves to choose only, true counts serve to estimate, and drawing is without replacement.

Is it unbiased? Sample sizes that depend on outcomes make the mean of all labels of a stratum biased in general. Each
batch by itself is not: every stratum gets at least one example of it, and its sizes are settled before its labels. So a
selection's estimate rests on its own batch, over the examples that were unlabelled before it.

Legend: N unlabelled examples, N_h those of stratum h, n budget.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.allocation import check_budget
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import NO_PREVIOUS, Draw, Task
from opacc_ray.samplers.ssrs import Parameters, draw_each, needs
from opacc_ray.samplers.strata import Strata, cut_strata

__all__ = ["Parameters", "draw", "needs"]


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Cut the strata, the same ones in every round, share the batch, and draw."""
    return draw_each(rng, *plan(view, task))


def plan(view: View, task: Task) -> tuple[Strata, NDArray[np.int64]]:
    """The strata of the examples that can be drawn, and how many of each to draw (H,)."""
    assert task.budget is not None
    labelled, outcome = task.previous
    strata = cut_strata(view, task.parameters.auxiliary, task.parameters.strata, NO_PREVIOUS.chosen)
    stratum, num = strata.of(labelled), len(strata.sizes)
    counted = np.bincount(stratum, minlength=num)
    failures = np.bincount(stratum, weights=1 - outcome, minlength=num).astype(np.float64)
    left = strata.without(labelled)
    open_ = np.flatnonzero(left.sizes)
    return left.only(open_), _climb(task.budget, left.sizes[open_], counted[open_], failures[open_])


def _climb(
    budget: int, sizes: NDArray[np.int64], counted: NDArray[np.int64], failures: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Examples of the batch per stratum, all (H,): one each, then one after the other where the gradient is largest."""
    check_budget(budget, sizes)
    rate = (failures + 1) / (counted + 2)
    weight = (sizes / sizes.sum()) ** 2 * rate * (1 - rate)  # gradient · n_h²
    given = np.ones(len(sizes), dtype=np.int64)
    steepest = [(-weight[h] / (counted[h] + 1) ** 2, h) for h in range(len(sizes)) if sizes[h] > 1]
    heapq.heapify(steepest)
    for _ in range(budget - len(sizes)):
        _, h = steepest[0]
        given[h] += 1
        if given[h] < sizes[h]:
            heapq.heapreplace(steepest, (-weight[h] / (counted[h] + given[h]) ** 2, h))
        else:
            heapq.heappop(steepest)
    return given
