"""Two trials to bring neyman nearer to its bound: neighbours in the failure model, half of the model in the estimate.

    python benchmarks/nearer.py CASES… [--labels 200] [--repetitions 120]

*neighbours*: the share of the 20 nearest examples in the hidden layer that the model puts in another class is one more
signal. It has an expert of its own, and one with all other signals. *half*: the estimate moves towards the prediction
of the failure model for the whole pool, without the correction by the sample, by

    w = ½ · min(1, V/d²)        d the difference of both, V the variance of the correction

so that a correction within its noise counts half. The interval moves along. Both draw four rounds of 10, 20, 30 and
40 %, in the same order of random numbers as the method itself.

Printed is a Markdown table. E is the mean squared error over that of a simple random sample of the same size, *cover*
the share of 95 % intervals that contain the truth, in percent, and ± one standard error of the difference of E.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.parts.view import View
from opacc_ray.samplers.neyman import failure_model, regression, signals
from opacc_ray.samplers.neyman.failure_model import Coefficient, Expert
from opacc_ray.study.cases import Case, Source, read_case

Array = NDArray[np.float64]

NEAREST, ROUNDS, LEVEL = 20, (0.1, 0.3, 0.6, 1.0), 0.95
VARIANTS = ("as it is", "neighbours", "half", "both")
NEIGHBOURS = {"neighbours": Coefficient(1.0, 0.7)}
EXPERTS = (
    *failure_model.EXPERTS,
    Expert(0.1, NEIGHBOURS),
    Expert(0.35, failure_model._BOTH | failure_model._SURPRISE | failure_model._HINTS | NEIGHBOURS),
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", nargs="+", type=Path, metavar="CASE")
    found.add_argument("--labels", type=int, default=200)
    found.add_argument("--repetitions", type=int, default=120)
    return found


def main() -> None:
    given = parser().parse_args()
    columns = [name for own in VARIANTS for name in ([own] if own == VARIANTS[0] else [own, "±"]) + ["cover"]]
    print(markdown.header(["case", *columns], texts=1))
    whole = list[Array]()
    for path in given.cases:
        case = read_case(Source(path.stem, str(path)))
        error, covered = trial(case, given.labels, given.repetitions)
        true = case.outcome
        ratio = error**2 / (true.var(ddof=1) * (1 / given.labels - 1 / len(true)))  # (repetitions, variants)
        whole.append(ratio)
        print(markdown.row([path.stem.replace("_", " "), *cells(ratio, covered)]), flush=True)
    means = np.array([own.mean(axis=0) for own in whole]).mean(axis=0)
    changes = ", ".join(
        f"{name} {own / means[0] - 1:+.1%}" for name, own in zip(VARIANTS, means, strict=True) if name != VARIANTS[0]
    )
    print(f"\nMean E {means[0]:.3f}; {changes}. {given.labels} labels, {given.repetitions} repetitions.")


def cells(ratio: Array, covered: NDArray[np.bool_]) -> Iterator[str]:
    for number, own in enumerate(ratio.T):
        yield f"{own.mean():.3f}"
        if number:
            yield f"{(own - ratio[:, 0]).std(ddof=1) / len(own) ** 0.5:.3f}"
        yield f"{covered[:, number].mean():.1%}".removesuffix("%")


def trial(case: Case, labels: int, repetitions: int) -> tuple[Array, NDArray[np.bool_]]:
    """Errors and coverage (repetitions, variants)."""
    error, covered, true = list[list[float]](), list[list[bool]](), float(case.outcome.mean())
    plain, own = View(case.view.parts), View(case.view.parts)
    share = disagreeing(case.view)
    for seed in range(repetitions):
        found = [estimates(plain, case, labels, seed)]
        with with_neighbours(share):
            found.append(estimates(own, case, labels, seed))
        (base, half), (near, both) = found
        rows = [base, near, half, both]
        error.append([value - true for value, _, _ in rows])
        covered.append([low <= true <= high for _, low, high in rows])
    return np.array(error), np.array(covered)


def estimates(view: View, case: Case, labels: int, seed: int) -> list[tuple[float, float, float]]:
    """Value and interval as they are, and with half of the model."""
    rounds: list[tuple[opacc.Selection, Array]] = []
    for size in np.diff([0, *(round(share * labels) for share in ROUNDS)]).tolist():
        chosen = opacc.select(view, "neyman", size, seed, previous=rounds)
        rounds.append((chosen, case.outcome[chosen.index]))
    selections, outcomes = [item for item, _ in rounds], [item for _, item in rounds]
    found = regression.regression_estimate(view, selections, outcomes, LEVEL)
    predicted = regression.fit(view, selections, outcomes).failure.copy()
    index = np.concatenate([part.index for part in selections])
    predicted[index] = 1 - np.concatenate(outcomes)
    apart = (1 - float(predicted.mean())) - found.value
    weight = 0.5 * min(1.0, found.standard_error**2 / max(apart**2, 1e-300))
    moved = [min(max(end + weight * apart, 0.0), 1.0) for end in (found.value, found.low, found.high)]
    return [(found.value, found.low, found.high), (moved[0], moved[1], moved[2])]


@contextmanager
def with_neighbours(share: Array) -> Iterator[None]:
    """The failure model with one more signal and two more experts."""
    make = signals._make

    def more(view: View, num_directions: int) -> Any:
        return make(view, num_directions).add("neighbours", share)

    with patch.object(signals, "_make", more), patch.object(failure_model, "EXPERTS", EXPERTS):
        yield


def disagreeing(view: View) -> Array:
    """Logit of the share of the nearest examples that are predicted as another class, standardised, (N,)."""
    hidden = np.concatenate([part.hidden for part in view.map(_itself)]).astype(np.float32)
    hidden /= np.maximum(hidden.std(axis=0), 1e-6)
    predicted, square = view.column("prediction"), (hidden**2).sum(axis=1)
    count = np.empty(len(hidden))
    for start in range(0, len(hidden), 1000):
        own = slice(start, start + 1000)
        distance = square - 2 * hidden[own] @ hidden.T
        distance[np.arange(len(distance)), np.arange(start, start + len(distance))] = np.inf
        near = np.argpartition(distance, NEAREST, axis=1)[:, :NEAREST]
        count[own] = (predicted[near] != predicted[own][:, None]).sum(axis=1)
    value = np.log((count + 0.5) / (NEAREST - count + 0.5))
    return (value - value.mean()) / value.std()


def _itself(part: opacc.Pool) -> opacc.Pool:
    return part


if __name__ == "__main__":
    main()
