"""How often intervals hold, and how wide they are: by level, number of labels, accuracy, and what the confidence says.

    python benchmarks/coverage_grid.py [--repetitions 1000] [--size 10000]

The pools are made: of N examples each fails with a probability p whose logit is normal, and the share of failures is
what the row says. *Calibrated* confidence is 1 - p; *silent* is the same numbers in random order, which say nothing of
where failures are. One pool for each row, drawn once. Printed is a Markdown table.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import Labelled, in_rounds, label_rounds, repeat
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

import opacc_ray as opacc
from opacc_ray.estimation.estimate import estimate_outcomes, measure_failures
from opacc_ray.estimation.intervals import Estimate, normal_quantile
from opacc_ray.estimation.sample import join
from opacc_ray.parts.view import View, view_of

LEVELS = (0.80, 0.90, 0.95, 0.99)
BUDGETS = (50, 100, 200, 400)
ACCURACIES = (0.5, 0.9, 0.99, 0.999)
CONFIDENCES = ("calibrated", "silent")
DESIGNS = ("srs", "css", "neyman", "neyman, 4 rounds")
COLUMNS = (
    *("accuracy", "confidence", "design", "n", "failures met"),
    *(f"covers, {100 * level:g} %" for level in LEVELS),
    *("width", "E"),
)
SPREAD = 2.0
"""Standard deviation of logit p."""


class Row(NamedTuple):
    """One line of the table."""

    accuracy: float
    confidence: str
    design: str
    budget: int


class Case(NamedTuple):
    """A pool whose outcomes are known."""

    view: View
    outcome: NDArray[np.float64]  # (N,)


class Trial(NamedTuple):
    """What one audit stated."""

    estimates: list[Estimate]  # at each level
    failures: int  # among the labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--size", type=int, default=10_000, help="examples of a pool")
    given = parser.parse_args()
    rows = [Row(a, c, d, n) for a in ACCURACIES for c in CONFIDENCES for d in DESIGNS for n in BUDGETS]
    trials = list(repeat(partial(audit_all, rows, given.size), range(given.repetitions)))
    print(markdown.header(COLUMNS, texts=3))
    for row, own in zip(rows, zip(*trials, strict=True), strict=True):
        print(markdown.row(cells(row, own, make_case(row.accuracy, row.confidence, given.size).outcome)))
    print(f"\n{len(trials)} repetitions of each row, pools of {given.size} examples.")


def audit_all(rows: Sequence[Row], size: int, seed: int) -> list[Trial]:
    """One audit of each row; those of `srs`, which reads no confidence, are done once for all kinds of it."""
    found: dict[Row, Trial] = {}
    for row in rows:
        same = row._replace(confidence=CONFIDENCES[0]) if row.design == "srs" else row
        if same not in found:
            found[same] = audit(make_case(same.accuracy, same.confidence, size), same, seed)
        found[row] = found[same]
    return [found[row] for row in rows]


@cache
def make_case(accuracy: float, confidence: str, size: int) -> Case:
    """A pool with exactly that share of right answers, or as near as whole examples allow."""
    rng = np.random.default_rng([round(1e4 * accuracy), size])
    hardness = SPREAD * rng.standard_normal(size)
    shift = brentq(lambda x: expit(hardness + x).mean() - (1 - accuracy), -30, 30)
    p = expit(hardness + shift)
    # the examples with the least u/p fail: p decides how likely each is among them, and their number is exact
    order = np.argsort(rng.exponential(size=size) / p)
    outcome = np.ones(size)
    outcome[order[: max(round((1 - accuracy) * size), 1)]] = 0
    said = 1 - p if confidence == "calibrated" else rng.permutation(1 - p)
    return Case(view_of(opacc.Pool(confidence=said)), outcome)


def audit(case: Case, row: Row, seed: int) -> Trial:
    """Draw, label and state at all levels."""
    method = row.design.partition(",")[0]
    sizes = in_rounds(row.budget) if "rounds" in row.design else [row.budget]
    labelled = label_rounds(case.view, case.outcome, method, sizes, seed)
    failures = int(sum((1 - own).sum() for own in labelled.outcomes))
    return Trial(list(_estimates(case, method, labelled)), failures)


def _estimates(case: Case, method: str, labelled: Labelled) -> Iterator[Estimate]:
    if method == "neyman":  # as opacc.estimate with the pool, whose failures are predicted once for all levels
        failures, _ = measure_failures(case.view, join(*labelled))
        yield from (failures.accuracy(level) for level in LEVELS)
    else:
        yield from (estimate_outcomes(*labelled, level) for level in LEVELS)


def cells(row: Row, trials: Sequence[Trial], outcome: NDArray[np.float64]) -> list[str]:
    """A line of the table; ``outcome`` (N,) is that of the pool."""
    truth = float(outcome.mean())
    held = np.array([[own.low <= truth <= own.high for own in trial.estimates] for trial in trials])
    error = np.array([trial.estimates[0].value - truth for trial in trials])
    size = float(np.sqrt((error**2).mean()))
    at = LEVELS.index(0.95)
    widths = [(trial.estimates[at].high - trial.estimates[at].low) / 2 for trial in trials]
    by_srs = truth * (1 - truth) * (1 / row.budget - 1 / len(outcome))
    return [
        *(f"{row.accuracy:g}", row.confidence, row.design, str(row.budget)),
        f"{np.mean([trial.failures for trial in trials]):.1f}",
        *(f"{100 * share:.1f}" for share in held.mean(axis=0)),
        f"{np.mean(widths) / (normal_quantile(0.95) * size):.2f}" if size else "–",
        f"{size**2 / by_srs:.2f}",
    ]


if __name__ == "__main__":
    main()
