"""Is this the model you mean? What predictions and the first labels let one doubt, as warnings in words.

Arrays go in, sentences come out; nothing is refused. Every rule names its threshold here.

    predictions of the pool     one class takes all; all confidences, or all values, are equal
    outputs of some examples    all are equal; scores that look like sigmoids
    inputs of some examples     they do not overlap those of the reference
    first labels, classes       they agree much better with another order of the classes; no better than chance
    first labels, values        nearly all score 0, as other units would; no correlation with the predictions

Another order σ is suspected if labels are σ(prediction) clearly more often than they are the prediction, and clearly
more often than independence explains: among the n labels whose prediction σ moves, g fit σ and l fit the prediction,

    P(Bin(g + l, 1/2) ≥ g) < α/F    and    P(Bin(n, e) ≥ g) < α/F

with e the share that fits σ by chance and F the number of orders of that kind: one shift each way, the alphabetical
order, C(C - 1)/2 exchanges, C! orders at all. So an honest model raises it with a probability of at most about 4α,
whatever its accuracy. Counts are of labels weighted as the design weighs them, at Kish's effective size
(Σw)²/Σw² ("Survey Sampling", 1965, 11.7), so that a sample of likely failures does not look like a mistake.

Legend: C classes, n labels, w weights, α 0.0005.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

FEWEST = 20
"""Examples, or labels, below which nothing is said of all of them."""

ALPHA = 0.0005
"""How often, per kind of order, an honest model may be doubted."""

LEAST_GAIN = 0.05
"""Share of labels that another order must explain beyond the one given."""

JUDGED, LEAST_OTHER, LEAST_SKILL = 30, 8, 0.3
"""Labels for a word about chance; labels and predictions outside of the largest class; skill that must be excluded."""

SCORED_ZERO = 0.95
"""Share of labels that score 0 from which units are doubted."""

APART = 3.0
"""Distance of two means, in standard deviations, from which inputs do not overlap."""


class Range(NamedTuple):
    """Lowest, median and highest of some numbers."""

    low: float
    median: float
    high: float


def about_predictions(num: int, classes: Mapping[str, int] | None, numbers: Range | None) -> list[str]:
    """Warnings about the predictions of a pool.

    Parameters
    ----------
    num : examples
    classes : predicted class -> examples; None for a regression, or if they are not known
    numbers : of the confidences, or of the values of a regression; None if they are not known
    """
    found: list[str] = []
    if num < FEWEST:
        return found
    only = [name for name, count in (classes or {}).items() if count == num]
    if only:
        found.append(f"all {num} examples are predicted as {only[0]!r}; check the weights and the transform")
    if numbers is not None and _are_equal(numbers):
        what = "predictions" if classes is None else "confidences"
        found.append(f"all {num} {what} are {numbers.low:.4g}; check the weights and the transform")
    return found


def about_outputs(output: NDArray[np.float32], task: str, kind: str) -> list[str]:
    """Warnings about the outputs (n, C) of some examples, which the spec calls ``kind``."""
    found: list[str] = []
    if len(output) >= 2 and np.all(output == output[0]):
        found.append(f"all {len(output)} outputs are equal; check the weights and the transform")
    elif task == "classification" and kind == "logits" and output.size >= FEWEST and _inside_one(output):
        found.append(
            "model.output says logits, and every output lies in [0, 1], as after a sigmoid; return the scores before "
            "the sigmoid. The scores of several labels per example are neither logits nor probabilities of one class"
        )
    return found


def about_inputs(pool: Floats, reference: Floats) -> list[str]:
    """Warnings if the inputs of a pool lie far from those of the reference: measures of some examples, (n, k), (m, k).

    Measures are told apart by their means, :data:`APART` standard deviations from one another.
    """
    if min(len(pool), len(reference)) < FEWEST or pool.shape[1] != reference.shape[1]:
        return []
    spread = np.sqrt((pool.var(axis=0) + reference.var(axis=0)) / 2)
    means = pool.mean(axis=0), reference.mean(axis=0)
    distance = np.abs(means[0] - means[1])
    far = np.flatnonzero(distance > np.maximum(APART * spread, 1e-6 * np.abs(means[1])))
    if not len(far):
        return []
    first = int(far[np.argmax(distance[far] / np.maximum(spread[far], 1e-12))])
    return [
        f"the inputs lie far from those of the reference: input {first} is {means[0][first]:.4g} ± "
        f"{pool[:, first].std():.2g} on average in the pool and {means[1][first]:.4g} ± "
        f"{reference[:, first].std():.2g} in the reference; check that both are read and transformed alike"
    ]


def about_classes(predicted: Codes, truth: Codes, weights: Floats, names: Sequence[str]) -> list[str]:
    """Warnings from labels of a classification.

    Parameters
    ----------
    predicted, truth : (n,) classes of the labelled examples, each example once
    weights : (n,) that the design gives them, not negative
    names : of the C classes, in the model's order
    """
    size = _scaled(weights)
    other = _best_order(predicted, truth, size, names)
    if other is not None:
        return [other]
    agree, total = float(size[predicted == truth].sum()), float(size.sum())
    shares = [np.bincount(own, weights=size, minlength=len(names)) / max(total, 1e-12) for own in (truth, predicted)]
    chance = float(shares[0] @ shares[1])
    enough = total >= JUDGED and all(total * (1 - part.max()) >= LEAST_OTHER for part in shares)
    share = agree / max(total, 1e-12)
    error = np.sqrt(max(share * (1 - share), chance * (1 - chance)) / max(total, 1.0))
    if enough and chance < 1 and share - chance + 2 * error < LEAST_SKILL * (1 - chance) and share - chance < error:
        return [
            f"the model is no better than chance: {_percent(share)} of the labels agree with its predictions, and "
            f"{_percent(chance)} would by chance; check weights, transform and the order of model.classes"
        ]
    return []


def about_values(predicted: Floats, truth: Floats, weights: Floats, outcome: Floats) -> list[str]:
    """Warnings from labels of a regression, each example once: (n,) each, ``outcome`` what the predictions score."""
    num = len(truth)
    zero = int(np.count_nonzero(outcome <= 0))
    if num >= FEWEST // 2 and zero >= SCORED_ZERO * num:
        middle = float(np.median(truth)), float(np.median(predicted))
        return [
            f"{zero} of {num} labels lie so far from the prediction that they score 0: half of the labels are below "
            f"{middle[0]:.4g} and half of the predictions below {middle[1]:.4g}; check that both have the same unit, "
            "and model.error_scale"
        ]
    size = _scaled(weights)
    total = float(size.sum())
    if total < JUDGED or np.ptp(truth) == 0 or np.ptp(predicted) == 0:
        return []
    correlation = _correlation(_ranks(predicted), _ranks(truth), size)
    if correlation + 2 / np.sqrt(total) < LEAST_SKILL and correlation < 1 / np.sqrt(total):
        return [
            f"the model is no better than chance: labels and predictions have a rank correlation of {correlation:.2f}; "
            "check weights, transform and the ids of the labels"
        ]
    return []


class _Order(NamedTuple):
    """What the predicted classes would really mean, and how it is said."""

    meaning: Codes  # (C,) class
    log_number: float  # log of how many orders of its kind there are
    question: str


def _best_order(predicted: Codes, truth: Codes, size: Floats, names: Sequence[str]) -> str | None:
    """The question whether classes are in another order, if the labels fit one much better; else None."""
    total = float(size.sum())
    if total < 1:
        return None
    own = float(size[predicted == truth].sum()) / total
    found: list[tuple[float, str]] = []
    for order in _orders(predicted, truth, size, names):
        share = float(size[order.meaning[predicted] == truth].sum()) / total
        if share - own >= LEAST_GAIN and _is_clear(order, predicted, truth, size):
            found.append((share, order.question))
    if not found:
        return None
    share, question = max(found, key=lambda item: item[0])  # of equal ones the first, which is the simplest
    return f"labels and predictions agree on {_percent(share)} instead of {_percent(own)} if {question}"


def _is_clear(order: _Order, predicted: Codes, truth: Codes, size: Floats) -> bool:
    """Whether labels fit an order more often than the one given, and than independence explains."""
    from scipy.stats import binom

    meant = order.meaning[predicted]
    moved = meant != predicted
    fits = np.floor(size[moved & (meant == truth)].sum() + 1e-9)
    against = np.ceil(size[moved & (predicted == truth)].sum() - 1e-9)
    among, total = size[moved].sum(), size.sum()
    shares = np.bincount(truth, weights=size, minlength=len(order.meaning)) / total
    chance = float((size[moved] * shares[meant[moved]]).sum() / among) if among > 0 else 1.0
    limit = np.log(ALPHA) - order.log_number
    better = binom.logsf(fits - 1, fits + against, 0.5)
    related = binom.logsf(fits - 1, np.ceil(among), min(chance, 1.0))
    return bool(fits > 0 and better < limit and related < limit)


def _orders(predicted: Codes, truth: Codes, size: Floats, names: Sequence[str]) -> Iterator[_Order]:
    """The orders that are tried, the simplest first."""
    from scipy.special import gammaln

    num = len(names)
    if num < 2:
        return
    classes = np.arange(num)
    ask = "is model.classes in the model's order?"
    yield from _exchanges(predicted, truth, size, names)
    if num > 2:
        for step in (1, -1):
            said = f"labels are shifted by one class ({names[step % num]} for {names[0]}): are they numbered from 1?"
            yield _Order((classes + step) % num, 0.0, said)
        alphabetical = np.array(sorted(range(num), key=lambda c: names[c]))
        yield _Order(alphabetical, 0.0, f"the model's classes are in alphabetical order: {ask}")
        meaning = _assigned(predicted, truth, size, num)
        moved = [f"{names[c]} means {names[meaning[c]]}" for c in np.flatnonzero(meaning != classes).tolist()]
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        yield _Order(meaning, float(gammaln(num + 1)), f"{', '.join(moved[:3])}{more}: {ask}")


def _exchanges(predicted: Codes, truth: Codes, size: Floats, names: Sequence[str]) -> Iterator[_Order]:
    """The exchange of two classes that labels fit best."""
    num = len(names)
    low, high = np.minimum(predicted, truth), np.maximum(predicted, truth)
    wrong = low != high
    if not wrong.any():
        return
    pairs, place = np.unique(low[wrong] * num + high[wrong], return_inverse=True)
    right = np.bincount(predicted[~wrong], weights=size[~wrong], minlength=num)
    gain = np.bincount(place, weights=size[wrong]) - right[pairs // num] - right[pairs % num]
    first, second = divmod(int(pairs[np.argmax(gain)]), num)
    meaning = np.arange(num)
    meaning[[first, second]] = second, first
    said = f"{names[first]} and {names[second]} change places: is model.classes in the model's order?"
    yield _Order(meaning, float(np.log(num * (num - 1) / 2)), said)


def _assigned(predicted: Codes, truth: Codes, size: Floats, num: int) -> Codes:
    """The order of all classes that fits most labels; classes that no label bears stay where they are."""
    from scipy.optimize import linear_sum_assignment

    seen, code = np.unique(np.concatenate([predicted, truth]), return_inverse=True)
    table = 1e-9 * np.eye(len(seen)) * max(float(size.sum()), 1.0)  # of equally good orders the one given
    np.add.at(table, (code[: len(predicted)], code[len(predicted) :]), size)
    rows, columns = linear_sum_assignment(table, maximize=True)
    meaning = np.arange(num)
    meaning[seen[rows]] = seen[columns]
    return meaning


def _scaled(weights: Floats) -> Floats:
    """Weights that sum to Kish's effective size, (n,)."""
    squares = float(weights @ weights)
    return weights * (weights.sum() / squares) if squares > 0 else np.ones(len(weights))


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values), dtype=np.float64)


def _correlation(x: Floats, y: Floats, weights: Floats) -> float:
    share = weights / weights.sum()
    x, y = x - share @ x, y - share @ y
    norm = float(np.sqrt((share @ x**2) * (share @ y**2)))
    return float(share @ (x * y)) / norm if norm > 0 else 0.0


def _are_equal(numbers: Range) -> bool:
    return numbers.high - numbers.low <= 1e-6 * max(abs(numbers.low), abs(numbers.high))


def _inside_one(output: NDArray[Any]) -> bool:
    return bool(np.isfinite(output).all() and output.min() >= 0 and output.max() <= 1 and output.shape[1] >= 2)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
