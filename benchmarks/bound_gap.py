"""Where `neyman` loses to its bound: in the draw, or in what is predicted at the end.

    python benchmarks/bound_gap.py CASES… [--budget 200] [--repetitions 20]

CASES are fully labelled classifications, `.npz`, `.csv` or `.parquet` files or folders of them. Four rounds are drawn;
then the variance of the estimate given their designs is computed from the true outcomes, which needs few repetitions.
It is that of a balanced sample (J.-C. Deville, Y. Tillé, "Variance approximation under balanced sampling", JSPI 128,
2005): of the errors f - p of all free examples, what the balancing variables do not explain,

    V_t = N⁻² Σ π(1 - π)(ě - ȟβ)²       ě = (f - p)/π,   ȟ = (π, σ², σ²x)/π,   β by least squares with weights π(1 - π)

and E is Σ w_t² V_t over the variance of a simple random sample. In the further columns p at the end, π in every round,
or both are those of the failure model that has seen all outcomes, as in the bound of Godambe and Joshi
(`opacc_ray/study/bound.py`). Printed is a Markdown table.

Legend: f failure, p predicted failure, π inclusion probability, σ² = p(1 - p), x signals, w weights of the rounds.
"""

import argparse
from functools import cache, partial
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from labelled_rounds import in_rounds
from misled import classifications
from numpy.typing import NDArray
from processes import repeat

from opacc_ray.designs.inclusion_probability import inclusion_probabilities
from opacc_ray.parts.view import View
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.samplers.neyman.regression import weights_by_variance
from opacc_ray.samplers.neyman.signals import Signals
from opacc_ray.study.bound import least_variance
from opacc_ray.study.cases import Source, find_cases, read_case
from opacc_ray.study.study_spec import CaseSpec

Numbers = NDArray[np.float64]

KINDS = ("E given the designs", "with the bound's p", "with the bound's π", "with both")
COLUMNS = ("case", "n", *KINDS, "bound")


class Case(NamedTuple):
    """A pool whose failures are known."""

    view: View
    failure: Numbers  # (N,)
    signals: Signals


class Round(NamedTuple):
    """One batch, and its design."""

    index: NDArray[np.int64]  # (n,) drawn
    free: NDArray[np.bool_]  # (N,) not labelled before
    probability: Numbers  # (free,) π
    variance: Numbers  # (free,) σ² of the draw


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="+", metavar="CASES")
    found.add_argument("--budget", type=int, default=200)
    found.add_argument("--repetitions", type=int, default=20)
    return found


def main() -> None:
    given = parser().parse_args()
    sources = classifications(find_cases([CaseSpec(path=path) for path in given.cases], {}, None))
    print(markdown.header(COLUMNS))
    rows = []
    for source in sources:
        case = prepared(source)
        measured = np.mean(list(repeat(partial(measure, source, given.budget), range(given.repetitions))), axis=0)
        bound = least_variance(case.view, 1 - case.failure, [given.budget])[given.budget]
        rows.append([*measured, bound / by_srs(case, given.budget)])
        print(markdown.row(cells(source.name.replace("_", " "), given.budget, rows[-1])), flush=True)
    print(markdown.row(cells("mean", given.budget, np.mean(rows, axis=0))))


def cells(name: str, budget: int, values: list[float] | Numbers) -> list[str]:
    return [name, str(budget), *(f"{value:.3f}" for value in values)]


@cache
def prepared(source: Source) -> Case:
    found = read_case(source)
    return case_of(found.view, found.outcome)


def case_of(view: View, outcome: Numbers) -> Case:
    return Case(view, 1 - outcome, read_signals(view, neyman.Parameters().directions))


@cache
def all_seen(source: Source) -> Numbers:
    """p (N,) of the failure model that has seen all outcomes."""
    case = prepared(source)
    return predict_failure(case.signals, np.arange(case.view.size), case.failure).failure


def by_srs(case: Case, budget: int) -> float:
    """Variance of the share of failures in a simple random sample."""
    return float(case.failure.var() * (1 / budget - 1 / case.view.size))


def measure(source: Source, budget: int, seed: int) -> list[float]:
    """E given the designs of one audit, as it is and with what the bound knows: see KINDS."""
    case = prepared(source)
    rounds = draw_rounds(case, in_rounds(budget), seed, neyman.Parameters())
    learned, known = taught(case, rounds), all_seen(source)
    best = [with_bound(own, known) for own in rounds]
    return [
        given_designs(case, designs, p) / by_srs(case, budget)
        for designs, p in ((rounds, learned), (rounds, known), (best, learned), (best, known))
    ]


def draw_rounds(case: Case, sizes: list[int], seed: int, parameters: neyman.Parameters) -> list[Round]:
    """Draw the rounds of an audit, each knowing the labels of those before it."""
    rng, rounds = np.random.default_rng(seed), list[Round]()
    for size in sizes:
        labelled = np.sort(np.concatenate([own.index for own in rounds])) if rounds else np.empty(0, dtype=np.int64)
        task = Task(size, parameters, Previous(labelled, 1 - case.failure[labelled]))
        ready = neyman.plan(case.view, task)
        free = np.ones(case.view.size, dtype=bool)
        free[labelled] = False
        index = neyman.draw_planned(ready, size, rng).chosen
        rounds.append(Round(index, free, ready.probability, ready.failure[0] * (1 - ready.failure[0])))
    return rounds


def with_bound(own: Round, known: Numbers) -> Round:
    """A round whose π is in proportion to the σ of the bound, whose p is ``known`` (N,)."""
    variance = (known * (1 - known))[own.free]
    return own._replace(probability=inclusion_probabilities(np.sqrt(variance), len(own.index)), variance=variance)


def taught(case: Case, rounds: list[Round]) -> Numbers:
    """p (N,) by the labels of all rounds."""
    index = np.concatenate([own.index for own in rounds])
    return predict_failure(case.signals, index, case.failure[index]).failure


def given_designs(case: Case, rounds: list[Round], predicted: Numbers) -> float:
    """Σ w² V of the rounds, w in proportion to the inverse of the variance that ``predicted`` (N,) foresees."""
    variance = predicted * (1 - predicted)
    foreseen = [variance[own.free] @ (1 / own.probability - 1) for own in rounds]
    true = np.array([_balanced(case, own, predicted) for own in rounds])
    return float(weights_by_variance(foreseen) ** 2 @ true) / case.view.size**2


def _balanced(case: Case, own: Round, predicted: Numbers) -> float:
    """N² V of a round whose errors are f - ``predicted`` (N,)."""
    probability = own.probability
    root = np.sqrt(probability * (1 - probability)) / probability
    held = root * np.vstack(
        [probability, own.variance, *(own.variance * x[own.free] for x in case.signals.values)]
    )  # (2 + d, free)
    error = root * (case.failure - predicted)[own.free]
    rest = error - held.T @ np.linalg.lstsq(held.T, error, rcond=None)[0]
    return float(rest @ rest)


if __name__ == "__main__":
    main()
