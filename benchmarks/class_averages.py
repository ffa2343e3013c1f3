"""How well means over classes are stated: their bias, how often intervals hold, and how wide they are.

    python benchmarks/class_averages.py [--classes 2,5,10,50,200] [--labels 400] [--repetitions 100] [--pools even,…]

Pools of 6,000 examples are made: noise of variance 1 is added to the true class's share of the logits, and the
confidence is that of their posterior. Classes are alike (*even*) or of unlike difficulty (*unlike*); their sizes fall
as 1/rank (*zipf*); some attract errors (*sinks*); errors stay among five classes (*groups*); the logits are tripled
(*overconfident*); or 1 % are of the last class, which the model knows (*rare*), or not, so that it is predicted much
more often (*flooded*). Draws are `srs` and `css`, and `neyman` in four rounds serving the accuracy or the number
itself. Printed is a Markdown table of each mean: its bias over its standard deviation, in how many percent 95 %
intervals cover, and their mean half-width over 1.96 root mean squared errors; and one by number of classes.
"""

import argparse
from collections.abc import Sequence
from functools import cache, partial
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import in_rounds, label_rounds, repeat
from numpy.typing import NDArray
from scipy.special import softmax

import opacc_ray as opacc
from opacc_ray.estimation.estimate import KnownPool, numbers_of
from opacc_ray.estimation.intervals import normal_quantile
from opacc_ray.estimation.sample import join
from opacc_ray.metrics.metric import AVERAGES, Metric, Parts, slopes
from opacc_ray.parts.view import view_of

Array = NDArray[np.float64]

SIZE, RARE = 6000, 0.01
KINDS = ("even", "unlike", "zipf", "sinks", "groups", "overconfident", "rare", "flooded")
DRAWS = ("srs", "css", "accuracy", "macro_recall", "macro_f1")
"""Methods, or what `neyman` serves."""
METRICS = tuple(map(Metric, AVERAGES))


class Case(NamedTuple):
    """A pool whose labels are known."""

    known: KnownPool
    truth: NDArray[np.int64]  # (N,)
    means: Array  # (metrics,)


class Trials(NamedTuple):
    """A draw from a pool."""

    kind: str
    num_classes: int
    draw: str
    budget: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", default="2,5,10,50,200")
    parser.add_argument("--labels", type=int, default=400)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--pools", default=",".join(KINDS))
    parser.add_argument("--draws", default=",".join(DRAWS))
    given = parser.parse_args()
    trials = [
        Trials(kind, int(num), draw, given.labels)
        for num in given.classes.split(",")
        for kind in given.pools.split(",")
        for draw in given.draws.split(",")
    ]
    columns = ("classes", "pool", "draw", *(f"{name}: bias, covers, width" for name in AVERAGES))
    print(markdown.header(columns, texts=3), flush=True)
    seeds = range(given.repetitions)
    found = repeat(partial(_nth, trials, seeds), range(len(trials) * len(seeds)))
    whole = dict[int, list[Array]]()
    for own in trials:
        rows = np.array([next(found) for _ in seeds])  # (repetitions, metrics, 3)
        stated = measures(rows, make_case(own.kind, own.num_classes).means)
        whole.setdefault(own.num_classes, []).append(stated)
        texts = [f"{a:+.2f} {b:.0f} {c:.2f}" for a, b, c in stated.T]
        print(markdown.row([str(own.num_classes), own.kind, own.draw, *texts]), flush=True)
    print(
        "\n"
        + markdown.header(("classes", "bias, median", "largest", "covers, mean", "least", "width, median"), texts=1)
    )
    for num, several in whole.items():
        bias, covers, width = np.stack(several, axis=1).reshape(3, -1)
        columns = np.median(np.abs(bias)), np.abs(bias).max(), covers.mean(), covers.min(), np.median(width)
        texts = [f"{value:.{digits}f}" for value, digits in zip(columns, (2, 1, 1, 0, 2), strict=True)]
        print(markdown.row([str(num), *texts]))


def _nth(trials: Sequence[Trials], seeds: range, i: int) -> Array:
    return audit(trials[i // len(seeds)], seeds[i % len(seeds)])


def audit(trials: Trials, seed: int) -> Array:
    """Draw, label and state all means: value, low and high, (metrics, 3)."""
    case = make_case(trials.kind, trials.num_classes)
    right = (case.truth == case.known.predicted).astype(np.float64)
    method, sizes, parameters = trials.draw, [trials.budget], {}
    if trials.draw not in ("srs", "css"):
        method, sizes, parameters = "neyman", in_rounds(trials.budget), {"serve": [trials.draw]}
    labelled = label_rounds(case.known.view, right, method, sizes, seed, **parameters)
    sample = join(*labelled, truth=case.truth[np.concatenate([own.index for own in labelled.rounds])])
    numbers = numbers_of(case.known, sample)
    found = [numbers.estimate(metric, 0.95) for metric in METRICS]
    return np.array([[own.value, own.low, own.high] for own in found])


def measures(rows: Array, true: Array) -> Array:
    """Bias, cover in percent and width of each metric, (3, metrics)."""
    value, low, high = np.moveaxis(rows, -1, 0)
    bias = (value.mean(axis=0) - true) / value.std(axis=0)
    covers = 100 * ((low <= true) & (true <= high)).mean(axis=0)
    width = (high - low).mean(axis=0) / 2 / (normal_quantile(0.95) * np.sqrt(((value - true) ** 2).mean(axis=0)))
    return np.stack([bias, covers, width])


@cache
def make_case(kind: str, num: int) -> Case:
    """The pool of a kind with ``num`` classes."""
    rng = np.random.default_rng([KINDS.index(kind), num])
    size = 1 / np.arange(1, num + 1) if kind == "zipf" else np.ones(num)
    if kind in ("rare", "flooded"):
        size[-1] = (num - 1) * RARE / (1 - RARE)
    truth = rng.choice(num, SIZE, p=size / size.sum())
    signal = np.full(num, {"groups": 2.6}.get(kind, 3.2) + np.log10(num / 50))
    if kind == "unlike":
        signal *= rng.uniform(0.6, 1.4, num)
    logit = rng.standard_normal((SIZE, num))
    logit[np.arange(SIZE), truth] += signal[truth]
    if kind == "sinks":
        logit[:, : num // 10] += 1.2
    if kind == "groups":
        logit += np.where(np.arange(num) // 5 == truth[:, None] // 5, 1.2, 0)
    prior = np.log(size) if kind == "rare" else 0.0
    score = softmax(signal.mean() * logit * (3 if kind == "overconfident" else 1) + prior, axis=1)
    predicted, confidence = score.argmax(axis=1), score.max(axis=1)
    known = KnownPool(
        view_of(opacc.Pool(prediction=predicted, confidence=confidence)), predicted, tuple(map(str, range(num)))
    )
    return Case(known, truth, true_means(truth, predicted, num))


def true_means(truth: NDArray[np.int64], predicted: NDArray[np.int64], num: int) -> Array:
    inside, of_class, right = (
        np.bincount(own, minlength=num).astype(float) for own in (predicted, truth, truth[truth == predicted])
    )
    parts = Parts(inside, len(truth) - inside)
    return np.array([slopes(metric, right, of_class - right, parts)[0] for metric in METRICS])


if __name__ == "__main__":
    main()
