"""How often intervals cover: two models, costs, sequences, rare losses, assisted.

    python benchmarks/intervals_coverage.py CASE… [--repetitions 300]

CASE is a fully labelled classification: an .npz with `hidden` (N, m), `logits` (N, C), `pred`, `label`, `confidence`
(N,). The second model of the comparison is the first one with normal noise of 1 on its logits; of the costs, missing
class 6 costs 10 and every other error 1. *Mostly wrong* is a model that is right where this one is wrong, *rare losses*
are scores of which 2 % are 0 and the others nearly 1. Any case of `opacc study` that has a confidence will do for the
second table: estimates that are assisted by it, and by outcomes of which 15 % are reversed. It states three numbers
each: without assistance, with strength 1 and tuned. E is the mean squared error over that of a simple random sample,
the bias is in standard deviations of the same. Printed are Markdown tables, row by row as they are measured. Level 95
%.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import in_rounds, label_rounds, repeat
from numpy.typing import NDArray
from scipy.special import expit

import opacc_ray as opacc
from opacc_ray.estimation.class_totals import ClassTotals, scaled
from opacc_ray.estimation.estimate import KnownPool, estimate_outcomes, numbers_of
from opacc_ray.estimation.failures import assisted_estimate
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import compare_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.extensions.study import cases as study
from opacc_ray.parts.view import view_of
from opacc_ray.samplers.select import select
from opacc_ray.selection import Selection

COSTS = {6: 10.0}
METHODS = ("srs", "css", "deepest", "sups", "rhcs", "ssrs", "neyman")
ALONE = ("srs", "css", "deepest", "sups", "rhcs", "two_ups", "ssrs", "gbs")
COLUMNS = ("case", "statement", "covers", "width", "rms error")
ASSISTED_COLUMNS = ("case", "method", "E", "bias", "covers, %", "width")
WRONG = ", wrong in 15 %"
ASSISTED = ("srs", "css", "ssrs", "gbs", "sups", "rhcs", "two_ups", "deepest")


class Case(NamedTuple):
    """A pool whose labels are known."""

    pool: opacc.Pool
    truth: NDArray[np.int64]  # (N,)
    prediction: NDArray[np.int64]  # (N,)
    other: NDArray[np.int64]  # (N,) predictions of another model

    @property
    def outcome(self) -> NDArray[np.float64]:
        return (self.truth == self.prediction).astype(np.float64)


Measure = Callable[[int], Iterator[tuple[Estimate, float]]]
"""From a seed: estimates with what is true."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="+", metavar="CASE")
    parser.add_argument("--repetitions", type=int, default=300)
    given = parser.parse_args()
    labelled = [path for path in given.cases if path.suffix == ".npz"]
    stated = [(path, name) for path in labelled for name in STATEMENTS]
    assisted = [(path, name) for path in given.cases for name in ASSISTED_STATEMENTS]
    if labelled:
        print(markdown.header(COLUMNS, texts=2))
        _print(stated, stated_cells, given.repetitions)
        print()
    print(markdown.header(ASSISTED_COLUMNS, texts=2))
    _print(assisted, assisted_cells, given.repetitions)


def _print(rows: Sequence[tuple[Path, str]], cells: Callable[[Path, str, int], list[str]], repetitions: int) -> None:
    """Measure rows on all cores, and print each as soon as those before it are measured."""
    measured = repeat(partial(_row, rows, cells, repetitions), range(len(rows)))
    for (path, name), own in zip(rows, measured, strict=True):
        print(markdown.row([path.stem.replace("_", " "), name, *own]), flush=True)


def _row(rows: Sequence[tuple[Path, str]], cells: Callable[[Path, str, int], list[str]], num: int, i: int) -> list[str]:
    return cells(*rows[i], num)


def stated_cells(path: Path, name: str, repetitions: int) -> list[str]:
    return summary(STATEMENTS[name](read_case(path)), repetitions)


def assisted_cells(path: Path, name: str, repetitions: int) -> list[str]:
    case = assisted_case(path)
    confidence = case.view.column("confidence")
    flipped = np.random.default_rng(0).random(len(case.outcome)) < 0.15
    wrong = np.where(flipped, 1 - case.outcome, case.outcome)  # such as whether another model agrees
    n, draw = ASSISTED_STATEMENTS[name]
    return _assisted(case, wrong if name.endswith(WRONG) else confidence, n, partial(draw, case), repetitions)


@cache
def assisted_case(path: Path) -> study.Case:
    return study.read_case(study.Source(path.stem, str(path)))


@cache
def read_case(path: Path) -> Case:
    with np.load(path) as arrays:
        logits = arrays["logits"]
        other = (logits + np.random.default_rng(0).normal(size=logits.shape)).argmax(axis=1)
        pool = opacc.Pool(hidden=arrays["hidden"], output=logits, confidence=arrays["confidence"])
        return Case(pool, arrays["label"].astype(np.int64), arrays["pred"].astype(np.int64), other)


def summary(measure: Measure, repetitions: int) -> list[str]:
    found = [item for seed in range(repetitions) for item in measure(seed)]
    covers = np.mean([estimate.low <= true <= estimate.high for estimate, true in found])
    width = np.mean([estimate.high - estimate.low for estimate, _ in found])
    error = np.mean([(estimate.value - true) ** 2 for estimate, true in found])
    return [f"{100 * covers:.1f} %", f"{width:.3f}", f"{np.sqrt(error):.4f}"]


def _totals(case: Case, chosen: Selection) -> ClassTotals:
    names, i = list(map(str, range(1 + max(case.truth.max(), case.prediction.max())))), chosen.index
    sample = join(chosen, case.outcome[i], truth=case.truth[i])
    return numbers_of(KnownPool(view_of(case.pool), case.prediction, names), sample).totals()


def _comparison(case: Case, method: str, n: int) -> Measure:
    other = (case.truth == case.other).astype(np.float64)
    true = float(case.outcome.mean() - other.mean())

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, method, n, seed)
        yield (
            compare_outcomes(chosen, [case.outcome[chosen.index], other[chosen.index]]).differences[0].difference,
            true,
        )

    return measure


def _cost(case: Case, method: str, n: int) -> Measure:
    true = float(np.mean((1 - case.outcome) * np.where(case.truth == 6, COSTS[6], 1.0)))

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, method, n, seed)
        totals = _totals(case, chosen)
        table = 1 - np.eye(totals.num_classes)
        for c, price in COSTS.items():
            table[c] *= price
        yield scaled(totals.mean_cost(table, 0.95), float(table.max())), true

    return measure


def _sequence(case: Case, method: str) -> Measure:
    """The last of a sequence is inside all before it: if it covers, all do. Four rounds of 50 labels."""

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        rounds = label_rounds(view_of(case.pool), case.outcome, method, [50] * 4, seed)
        yield confidence_sequence(join(*rounds)), float(case.outcome.mean())

    return measure


def _mostly_wrong(case: Case, method: str, n: int) -> Measure:
    """Where the model is right, a mirrored one is wrong."""
    view, outcome = view_of(case.pool), 1 - case.outcome

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        yield estimate_outcomes(*label_rounds(view, outcome, method, [n], seed)), float(outcome.mean())

    return measure


def _rare_losses(case: Case, method: str, sizes: list[int]) -> Measure:
    """Scores: 2 % of the pool, anywhere, lose all, and the others next to nothing."""
    rng, view = np.random.default_rng(0), view_of(case.pool)
    scores = 1 - np.where(rng.random(view.size) < 0.02, 1.0, 0.001 * rng.random(view.size))

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        yield estimate_outcomes(*label_rounds(view, scores, method, sizes, seed), pool=view), float(scores.mean())

    return measure


def _foreseen_losses(case: Case, sizes: list[int]) -> Measure:
    """Scores: 2 % of the pool lose all where the confidence says so, and the others up to 5 %."""
    rng, size = np.random.default_rng(0), len(case.truth)
    logit = 5 * rng.standard_normal(size)
    p = expit(logit - np.quantile(logit, 0.985))
    scores, view = (
        1 - np.where(rng.random(size) < p, 1.0, 0.05 * rng.random(size)),
        view_of(opacc.Pool(confidence=1 - p)),
    )

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        yield estimate_outcomes(*label_rounds(view, scores, "neyman", sizes, seed), pool=view), float(scores.mean())

    return measure


def _statements() -> Iterator[tuple[str, Callable[[Case], Measure]]]:
    for n in (60, 200):
        for method in METHODS:
            yield f"comparison, {method}, n={n}", partial(_comparison, method=method, n=n)
            yield f"cost, {method}, n={n}", partial(_cost, method=method, n=n)
    for method in ("srs", "sups", "deepest", "css", "neyman"):
        yield f"sequence, {method}, n=200", partial(_sequence, method=method)
    for method in ALONE:
        yield f"mostly wrong, {method}, n=50", partial(_mostly_wrong, method=method, n=50)
    for n in (30, 100, 200):
        for method, sizes in (("srs", [n]), ("neyman", [n]), ("neyman", in_rounds(n))):
            rounds = ", 4 rounds" if len(sizes) > 1 else ""
            yield f"rare losses, {method}{rounds}, n={n}", partial(_rare_losses, method=method, sizes=sizes)
        yield f"foreseen losses, neyman, 4 rounds, n={n}", partial(_foreseen_losses, sizes=in_rounds(n))


STATEMENTS = dict(_statements())
"""Rows of the first table."""


Rounds = tuple[list[opacc.Selection], list[NDArray[np.float64]]]


def _assisted(
    case: study.Case, prediction: NDArray[np.float64], n: int, draw: Callable[[int], Rounds], repetitions: int
) -> list[str]:
    """E, bias, coverage and width, three numbers each: without assistance, strength 1, tuned."""
    true, found = float(case.outcome.mean()), []
    for seed in range(repetitions):
        rounds, outcomes = draw(seed)
        assisted = [
            assisted_estimate(join(rounds, outcomes), prediction, strength=strength) for strength in (1.0, None)
        ]
        found.append([(item.value, item.low, item.high) for item in (estimate_outcomes(rounds, outcomes), *assisted)])
    value, low, high = np.array(found).transpose(2, 1, 0)  # (3, repetitions) each
    expected = case.outcome.var(ddof=1) * (1 / n - 1 / case.view.size)  # squared error of SRS
    error, bias = ((value - true) ** 2).mean(axis=1) / expected, (value.mean(axis=1) - true) / np.sqrt(expected)
    covers, width = ((low <= true) & (true <= high)).mean(axis=1), (high - low).mean(axis=1)
    columns = ((error, ".2f"), (bias, "+.2f"), (100 * covers, ".1f"), (width, ".3f"))
    return [" / ".join(f"{value:{form}}" for value in values) for values, form in columns]


def _once(method: str, n: int, case: study.Case, seed: int) -> Rounds:
    chosen = opacc.select(case.view, method, n, seed)
    return [chosen], [case.outcome[chosen.index]]


def _twice(case: study.Case, seed: int) -> Rounds:
    first = opacc.select(case.view, "srs", 50, seed)
    outcome = case.outcome[first.index]
    second = select(case.view, "css", 50, seed, previous=[(first, outcome)])
    return [first, second], [outcome, case.outcome[second.index]]


def _assisted_statements() -> Iterator[tuple[str, tuple[int, Callable[[study.Case, int], Rounds]]]]:
    for n in (50, 100, 200):
        for method in ASSISTED:
            draw = partial(_once, method, n)
            yield f"{method}, n={n}", (n, draw)
            yield f"{method}, n={n}{WRONG}", (n, draw)
    yield "srs and css, n=50+50", (100, _twice)


ASSISTED_STATEMENTS = dict(_assisted_statements())
"""Rows of the second table: number of labels, and how they are drawn from a case and a seed."""


if __name__ == "__main__":
    main()
