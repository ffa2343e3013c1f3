"""How often intervals hold, and how wide they are: every number, drawn for it or for another one, on kinds of pools.

    python benchmarks/coverage_grid.py [--repetitions 40] [--again 400] [--draws f1,…] [--pools hidden,…] [--labels 200]

A *cell* is a draw, a pool, a number of labels and a number that is stated. Draws are `neyman` in four rounds, serving
the accuracy, F1, recall or slices, and one round of `ces` and `deepest`. The pools are made, with two classes: the
logit of class 1 is normal, and the score is its probability (*sound*), that of three times the logit (*overconfident*),
the same for the prediction and in random order for the confidence (*shuffled*), or 1 where it is above .85 (*tied*). In
*rare* pools one example in 200 is of class 1; in *hidden* ones it is one in 100, and a third of them has the scores of
sure negatives. There are eight pools of each kind, and trials take them in turn.
``--pools failing`` has 36 kinds with a slice e that is all wrong, half or all right, and whose confidence is as
elsewhere, higher or lower; only the accuracy in slices is stated of them.

Every trial states all numbers at four levels. A draw and pool with a cell that covers in less than 93 % is measured
anew, with ``--again`` other repetitions: those that made it look weak do not count. The first pass takes some six
minutes of one core, the second half an hour: by chance alone, half of them look weak. An estimate whose reason states
what it assumes, or that has too few labels to tell, counts as right in the column *or says so*. *Width* is the mean
half-width over 1.96 root mean squared errors. Markdown tables are printed: by draw and number of labels, by level, and
the cells below 93 %.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import markdown_table as markdown
import numpy as np
from audits import in_rounds, label_rounds, repeat
from numpy.typing import NDArray
from scipy.special import expit

import opacc_ray as opacc
from opacc_ray.estimation.class_totals import scaled
from opacc_ray.estimation.distribution import Total
from opacc_ray.estimation.estimate import KnownPool, Numbers, numbers_of
from opacc_ray.estimation.intervals import Estimate, normal_quantile
from opacc_ray.estimation.sample import join
from opacc_ray.estimation.totals import Variable
from opacc_ray.metrics.metric import Metric, Parts, parse_metric, tells
from opacc_ray.metrics.scores import ranking_of, score_of
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH, Slicing

Array = NDArray[np.float64]

LEVELS = (0.80, 0.90, 0.95, 0.99)
STATED = LEVELS.index(0.95)
BUDGETS = (100, 200, 1000)
SERVED = {"accuracy": "accuracy", "f1": "f1@1", "recall": "recall@1", "slices": "s"}
DRAWS = (*SERVED, "ces", "deepest")
SIZES = {"sound": 4000, "overconfident": 4000, "hidden": 10_000, "shuffled": 4000, "tied": 4000, "rare": 10_000}
"""Examples of each kind of pool."""
FAILING = {
    f"{size} {kind} {sure}": (size, wrong, shift)
    for kind, wrong in (("wrong", 1.0), ("half", 0.5), ("right", 0.0))
    for size in (10, 27, 100, 300)
    for sure, shift in (("equal", 0.0), ("higher", 1.5), ("lower", -1.5))
}
"""Of 3,000 examples: those in the slice, the share of them that is wrong, and by how much their log odds are higher."""
METRICS = tuple(map(parse_metric, ("accuracy", "precision@1", "recall@1", "f1@1", "auc@1", "brier")))
PARTS = (("accuracy", "s"), ("accuracy", BY_PREDICTION), ("recall", BY_TRUTH))
COST = np.array([[0.0, 1.0], [5.0, 0.0]])
"""Of true and predicted class."""
SHARES = (0.05, 0.15, 0.3, 0.5)
"""Of the slices, which are drawn at random."""
GOAL = 0.93
POOLS = 8
"""Of each kind."""


class Trials(NamedTuple):
    """A draw from a pool."""

    draw: str
    pool: str
    budget: int


class Case(NamedTuple):
    """A pool whose labels are known."""

    view: View
    known: KnownPool
    truth: NDArray[np.int64]  # (N,)
    numbers: dict[str, float]  # what is true of each


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--again", type=int, default=400)
    parser.add_argument("--draws", default=",".join(DRAWS))
    parser.add_argument("--pools", default=",".join(SIZES))
    parser.add_argument("--labels", default=",".join(map(str, BUDGETS)))
    given = parser.parse_args()
    names = [own.split(",") for own in (given.draws, given.pools, given.labels)]
    if given.pools == "failing":
        names[1] = list(FAILING)
    trials = [Trials(draw, pool, int(budget)) for draw, pool, budget in product(*names)]
    found = measure(trials, range(given.repetitions))
    weak = [own for own in trials if covers(found[own])[:, STATED].min() < GOAL] if given.again else []
    seeds = range(given.repetitions, given.repetitions + given.again)
    found |= measure(weak, seeds)
    for table in (by_draw, by_level, below_goal):
        print("\n".join(table(found)), end="\n\n")
    width = np.nanmedian(np.concatenate([widths(rows) for rows in found.values()]))
    print(f"{sum(rows.shape[1] for rows in found.values()):,} cells, median width {width:.2f}.")
    print(f"{given.repetitions} repetitions of each cell, {given.again} others of {len(weak)} draws and pools.")


def measure(trials: Sequence[Trials], seeds: range) -> dict[Trials, Array]:
    """What was stated, (seeds, numbers, levels, 5) of each: value, low, high, whether it says so, and the truth."""
    rows = list(repeat(partial(_nth, trials, seeds), range(len(trials) * len(seeds))))
    return {own: np.array(rows[k * len(seeds) :][: len(seeds)]) for k, own in enumerate(trials)}


def _nth(trials: Sequence[Trials], seeds: range, i: int) -> Array:
    return audit(trials[i // len(seeds)], seeds[i % len(seeds)])


def audit(trials: Trials, seed: int) -> Array:
    """Draw, label and state all numbers at all levels, (numbers, levels, 5)."""
    case = make_case(trials.pool, seed % POOLS, trials.draw == "ces")
    served = SERVED.get(trials.draw)
    sizes = in_rounds(trials.budget) if served else [trials.budget]
    correct = (case.truth == case.known.predicted).astype(np.float64)
    method, parameters = ("neyman", {"serve": [served]}) if served else (trials.draw, {})
    labelled = label_rounds(case.view, correct, method, sizes, seed, **parameters)
    sample = join(*labelled, truth=case.truth[np.concatenate([own.index for own in labelled.rounds])])
    all_numbers = trials.pool not in FAILING
    numbers = numbers_of(case.known, sample, METRICS if all_numbers else ())
    for evidence in numbers.evidence.values():  # they are the same at all levels
        evidence.totals = remembered(evidence.totals)  # type: ignore[method-assign]
    by_level = [dict(stated(numbers, level) if all_numbers else of_slices(numbers, level)) for level in LEVELS]
    rows = [[cells(own[name], true) for own in by_level] for name, true in case.numbers.items()]
    return np.array(rows)


def remembered(totals: Callable[[Variable, NDArray[Any], int], list[Total]]) -> Callable[..., list[Total]]:
    """Return a function that computes the totals of each variable and domain once."""
    known = dict[tuple[bytes | int, ...], list[Total]]()

    def own(variable: Variable, domain: NDArray[Any], num: int) -> list[Total]:
        key = (*(np.asarray(column).tobytes() for column in (*variable, domain)), num)
        return known[key] if key in known else known.setdefault(key, totals(variable, domain, num))

    return own


def cells(found: Estimate, true: float) -> list[float]:
    says = found.reason is not None or not tells(found.low, found.high, found.n)
    return [found.value, found.low, found.high, says, true]


def stated(numbers: Numbers, level: float) -> Iterator[tuple[str, Estimate]]:
    """Every number with its name."""
    for metric in METRICS:
        yield str(metric), numbers.estimate(metric, level)
    yield from of_slices(numbers, level, PARTS)
    yield "cost", scaled(numbers.totals().mean_cost(COST, level), float(COST.max()))


def of_slices(
    numbers: Numbers, level: float, parts: Sequence[tuple[str, str]] = PARTS[:1]
) -> Iterator[tuple[str, Estimate]]:
    """Those of parts of the pool: by default the accuracy in each slice."""
    for name, by in parts:
        for part, found in numbers.by(Metric(name), by, level).items():
            yield f"{by} {part}", found


@cache
def make_case(name: str, nth: int, has_hidden: bool = False) -> Case:
    """The nth pool of a kind; with a hidden layer only for `ces`, which reads it."""
    rng, size = np.random.default_rng([[*SIZES, *FAILING].index(name), nth]), SIZES.get(name, 3000)
    logit = {"hidden": 7, "rare": 7}.get(name, 3) * rng.standard_normal(size)
    share = {"hidden": 0.01, "rare": 0.005}.get(name, 0.2)
    logit -= np.quantile(logit, 1 - share)
    truth = (rng.random(size) < expit(logit)).astype(np.int64)
    if name == "hidden":
        positives, sure = rng.permutation(np.flatnonzero(truth)), rng.permutation(np.flatnonzero(logit < -7))
        hidden = positives[: len(positives) // 3]
        logit[hidden] = logit[sure[: len(hidden)]]
    score = expit(3 * logit if name == "overconfident" else logit)
    predicted, confidence = (score > 0.5).astype(np.int64), np.maximum(score, 1 - score)
    if name == "shuffled":
        confidence = rng.permutation(confidence)
    if name == "tied":
        confidence = np.where(confidence > 0.85, 1.0, confidence)
    slices = Slicing(tuple("abcd"), rng.choice(4, size, p=SHARES).astype(np.int32))
    if name in FAILING:
        num, wrong, shift = FAILING[name]
        slices.codes[:num], slices = 4, Slicing(tuple("abcde"), slices.codes)
        truth[:num] = np.where(np.arange(num) < wrong * num, 1 - predicted[:num], predicted[:num])
        confidence[:num] = expit(np.log(confidence[:num] / (1 - confidence[:num])) + shift)
    hidden_layer = {"hidden": np.column_stack([logit, rng.normal(size=(size, 7))])} if has_hidden else {}
    pool = opacc.Pool(
        prediction=predicted, confidence=confidence, slices={"s": np.array(slices.names)[slices.codes]}, **hidden_layer
    )
    view = view_of(pool)
    known = KnownPool(view, predicted, ("0", "1"), {"s": slices})
    true = dict(true_numbers(truth, predicted, confidence, slices))
    if name in FAILING:
        true = {f"s {part}": true[f"s {part}"] for part in slices.names}
    return Case(view, known, truth, true)


def true_numbers(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], confidence: Array, slices: Slicing
) -> Iterator[tuple[str, float]]:
    """Every number of the pool, in the order in which they are stated."""
    failure, inside = (truth != predicted).astype(np.float64), predicted == 1
    tp, fn = float((truth * predicted).sum()), float((truth * (1 - predicted)).sum())
    sizes = Parts(float(inside.sum()), float((~inside).sum()))
    for metric in METRICS:
        if metric.judges_confidence:
            score = metric.name == "brier"
            number = score_of("brier", confidence) if score else ranking_of(metric.name, confidence, failure, inside)
            yield str(metric), number.base + float(number.coefficient @ failure) / len(failure)
        else:
            accuracy = metric.name == "accuracy"
            yield str(metric), 1 - failure.mean() if accuracy else float(metric.function(tp, fn, sizes))
    parts = ("s", slices.codes, slices.names), (BY_PREDICTION, predicted, "01"), (BY_TRUTH, truth, "01")
    for by, codes, names in parts:
        yield from ((f"{by} {part}", 1 - failure[codes == c].mean()) for c, part in enumerate(names))
    yield "cost", float(COST[truth, predicted].mean())


# -- tables -------------------------------------------------------------------------------------------------------


def held(found: Array) -> NDArray[np.bool_]:
    """Whether each interval has the truth, up to rounding."""
    _, low, high, _, true = np.moveaxis(found, -1, 0)
    held: NDArray[np.bool_] = (low <= true + 1e-9) & (true - 1e-9 <= high)
    return held


def covers(found: Array) -> Array:
    """(numbers, levels)."""
    return held(found).mean(axis=0)


def widths(found: Array) -> Array:
    """(numbers,) mean half-width over 1.96 root mean squared errors; NaN without an error."""
    value, low, high, _, true = np.moveaxis(found[:, :, STATED], -1, 0)
    error = np.sqrt(((value - true) ** 2).mean(axis=0))
    half = (high - low).mean(axis=0) / 2
    return np.where(error > 0, half / (normal_quantile(0.95) * np.maximum(error, 1e-300)), np.nan)


def by_draw(found: dict[Trials, Array]) -> Iterator[str]:
    yield markdown.header(("draw", "labels", "covers, mean", "least", "width, median", "least cell"))
    for draw, budget in dict.fromkeys((own.draw, own.budget) for own in found):
        rows = {own: found[own] for own in found if (own.draw, own.budget) == (draw, budget)}
        shares = {own: covers(stated)[:, STATED] for own, stated in rows.items()}
        least = min(shares, key=lambda own: shares[own].min())
        name = list(make_case(least.pool, 0).numbers)[int(shares[least].argmin())]
        width = np.nanmedian([widths(stated) for stated in rows.values()])
        mean = 100 * np.mean(list(shares.values()))
        texts = f"{mean:.1f}", f"{100 * shares[least].min():.1f}", f"{width:.2f}", f"{least.pool}, {name}"
        yield markdown.row([draw, str(budget), *texts])


def by_level(found: dict[Trials, Array]) -> Iterator[str]:
    yield markdown.header(("draw", *(f"{100 * level:g} %" for level in LEVELS)))
    for draw in dict.fromkeys(own.draw for own in found):
        shares = np.mean([covers(rows).mean(axis=0) for own, rows in found.items() if own.draw == draw], axis=0)
        yield markdown.row([draw, *(f"{100 * share:.1f}" for share in shares)])


def below_goal(found: dict[Trials, Array]) -> Iterator[str]:
    columns = ("draw", "pool", "labels", "number", "covers", "or says so", "too high", "width", "repetitions")
    yield markdown.header(columns, texts=2)
    for own, rows in found.items():
        shares, width, at = covers(rows)[:, STATED], widths(rows), rows[:, :, STATED]
        or_says = (held(at) | (at[..., 3] > 0)).mean(axis=0)
        above = (at[..., 1] > at[..., 4] + 1e-9).mean(axis=0)
        names = list(make_case(own.pool, 0).numbers)
        for k in np.flatnonzero(shares < GOAL).tolist():
            percent = (f"{100 * share[k]:.1f}" for share in (shares, or_says, above))
            yield markdown.row(
                [own.draw, own.pool, str(own.budget), names[k], *percent, f"{width[k]:.2f}", str(len(rows))]
            )


if __name__ == "__main__":
    main()
