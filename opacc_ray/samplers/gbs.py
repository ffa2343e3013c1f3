"""GBS: gradient-based sampling, strata chosen by the labels so far.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584.

The pool is cut in ten strata by 1-D k-means of the failure score (:mod:`opacc_ray.samplers.auxiliary`).
The next example comes from the stratum where it lowers the variance of the estimate most,

    argmax_h P_h² · θ_h · (1 - θ_h) / n_h²        P_h = N_h / N, n_h labels so far, θ_h their share of failures,

and the estimator is Σ_h P_h · mean(y | stratum h).

Changed. The original reads each outcome before it chooses the next example. Labels from people come back in batches, so
here θ_h comes from earlier rounds (``previous``) and n_h counts the batch as it grows. The first batch is a stratified
sample in proportion to the strata; later batches go where outcomes vary.

Corrected. The original starts the count of labels of every stratum at 1, which underestimates failures in a stratum
with few labels. It uses one smoothed rate both to choose and to estimate, and may draw an example again. Here the
smoothed rate (failures + 1)/(n_h + 2) only chooses, true counts estimate, and drawing is without replacement.

Is it unbiased? Sample sizes that depend on outcomes make the mean of all labels of a stratum biased in general. A
single batch is not biased: every stratum gets at least one of its examples, and its sizes are fixed before its labels
are known. So a selection's estimate uses its own batch only, over the examples that were unlabelled before it.

Legend: N unlabelled examples, N_h those of stratum h, n budget.
"""

import heapq

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Task
from opacc_ray.samplers.ssrs import Parameters, needs

__all__ = ["Parameters", "draw", "needs"]


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Cut the strata, the same ones in every round, share the batch, and draw."""
    labelled, outcome = task.previous
    score = auxiliary.read(view, task.parameters.auxiliary).score()
    stratum = auxiliary.kmeans_1d(score, task.parameters.strata)  # (N,)
    free, num = task.free(view.size), int(stratum.max()) + 1
    sizes = np.bincount(stratum[free], minlength=num)
    counted = np.bincount(stratum[labelled], minlength=num)
    failures = np.bincount(stratum[labelled], weights=1 - outcome, minlength=num).astype(np.float64)
    left = np.flatnonzero(sizes)
    allocation = allocate_by_gradient(task.budget, sizes[left], counted[left], failures[left])
    return auxiliary.draw_strata(rng, free, np.searchsorted(left, stratum[free]), allocation)


def allocate_by_gradient(
    budget: int, sizes: NDArray[np.int64], counted: NDArray[np.int64], failures: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the batch per stratum, (H,): one example each, then one at a time where the gradient is largest."""
    auxiliary.check_budget(budget, sizes)
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
