"""Warn, in sentences, of a model or of labels that are probably not the intended ones.

Arrays go in, sentences come out; nothing is refused. Every rule names its threshold here.

    predictions of the pool     one class is predicted for all; all confidences, or all values, are equal; a confidence
                                is below that of a uniform distribution
    outputs of some examples    all are equal; nearly all are one class; scores that may come from sigmoids
    inputs of some examples     they do not overlap those of the reference
    first labels, classes       they agree much better with another order of the classes; no better than chance
    first labels, values        nearly all score 0, as with another unit; no correlation with the predictions
    predicted failures          labels contradict them (:func:`contradiction`; :func:`agreement` says how far)

Another order σ is suspected if labels are σ(prediction) clearly more often than they are the prediction, and clearly
more often than independence explains. Among the n labels whose prediction σ moves, g fit σ and l fit the prediction:

    P(Bin(g + l, 1/2) ≥ g) < α/F    and    P(Bin(n, e) ≥ g) < α/F

with e the share that fits σ by chance and F the number of orders of that kind: one shift each way, the alphabetical
order, C(C - 1)/2 exchanges, C! orders in all. So a correct model causes the warning with a probability of at most about
4α, whatever its accuracy. Labels count by their design weights, scaled to Kish's effective size (Σw)²/Σw² ("Survey
Sampling", 1965, 11.7), so that a sample of likely failures does not cause it.

Where each example had a predicted failure probability p before its label, unequal weights cost nothing, and fewer
labels suffice. Under σ the n labels have the likelihood

    L(σ) = mean_δ Π [1 - p if the label fits σ, else p/(C - 1)]        all logits of p are off by the same δ, as below

and σ is suspected as well if L(σ) is 100·F times as large as max_δ Π [1 - p if the prediction is right, else p], and as
Π q with q the shares of the true classes, by which they are independent of the prediction. Each ratio has a mean of at
most 1 if the order given is right, or the prediction worthless (:func:`contradiction`).

Legend: C classes, n labels, w weights, α 0.0005.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.selection import Outcome, Selection, is_binary

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

FEWEST = 20
"""Least number of examples, or labels, for a warning about all of them."""

ONE_CLASS, APART_ONE = 0.9, 4.0
"""Share of examples in one class that is doubted; for two classes, also in standard deviations of their number."""

ROUNDED = 0.005
"""Amount by which a confidence may be below one over the number of classes."""

ALPHA = 0.0005
"""Probability of a false warning, per kind of order."""

LEAST_GAIN = 0.05
"""Share of labels that another order must explain beyond the one given."""

JUDGED, LEAST_OTHER, LEAST_SKILL = 30, 8, 0.3
"""Least labels to compare with chance; least labels and predictions outside the largest class; excluded skill."""

SCORED_ZERO = 0.95
"""Share of labels with score 0 from which another unit is suspected."""

APART = 3.0
"""Distance of two means, in standard deviations, from which inputs do not overlap."""


AGREEMENT_LIMIT = 4.0
"""Squared distance of the failures of a part from their predicted number, in variances, at which the agreement is 0."""

FORESEEN_FROM = "foreseen_from"
"""Entry of a selection's facts: the name of the user's input that its predictions are based on."""

LEAST_RATIO = 100.0
"""1/α of a contradiction."""

_AGREE = "labels and predictions agree on"
_OF_CONFIDENCE = (
    "; a single failure rate for all would have predicted better; check that confidence is the probability of a "
    "correct prediction"
)
"""Beginning of a suspected order; the lead of a contradiction."""

_LOGIT_SHIFTS = np.linspace(-1.5, 1.5, 31)
"""Possible errors of the level of predicted failures, in logits."""


class Range(NamedTuple):
    """Lowest, median and highest of some numbers."""

    low: float
    median: float
    high: float


def about_predictions(
    num: int, classes: Mapping[str, int] | None, numbers: Range | None, num_classes: int | None = None
) -> list[str]:
    """Return warnings about the predictions of a pool of ``num`` examples.

    ``classes`` maps each predicted class to its examples, None for a regression. ``numbers`` are those of the
    confidences, or of the values of a regression. ``num_classes`` counts all classes. Each is None if it is not known.
    """
    found: list[str] = []
    if num < FEWEST:
        return found
    only = [name for name, count in (classes or {}).items() if count == num]
    if only:
        found.append(f"all {num} examples are predicted as {only[0]!r}; check the weights and the transform")
    names = {name.casefold(): name for name in classes or {}}
    alike = [(name, names[name.casefold()]) for name in classes or {} if names[name.casefold()] != name]
    if alike:
        what = " and ".join(map(repr, alike[0]))
        found.append(f"the classes {what} differ in upper and lower case alone; if they are one, write one of them")
    if numbers is not None and numbers.high - numbers.low <= 1e-6 * max(abs(numbers.low), abs(numbers.high)):
        what = "predictions" if classes is None else "confidences"
        found.append(f"all {num} {what} are {numbers.low:.4g}; check the weights and the transform")
    if classes and num_classes and numbers is not None and numbers.low < 1 / num_classes - ROUNDED:
        remedy = "its column is output, and model.output is probability" if num_classes == 2 else "take the largest"
        found.append(
            f"a confidence is {numbers.low:.2g}, and the largest of {num_classes} probabilities is at least "
            f"{1 / num_classes:.2g}; if it is the probability of one class, whatever is predicted, {remedy}"
        )
    return found


def about_outputs(output: NDArray[np.float32], task: str, kind: str) -> list[str]:
    """Return warnings about the outputs (n, C) of some examples, which the spec calls ``kind``."""
    found: list[str] = []
    if len(output) >= 2 and np.all(output == output[0]):
        found.append(f"all {len(output)} outputs are equal; check the weights and the transform")
    elif (
        (task, kind) == ("classification", "logits")
        and (output.size >= FEWEST and np.isfinite(output).all())
        and (output.min() >= 0 and output.max() <= 1 and output.shape[1] >= 2)
    ):
        found.append(
            "model.output says logits, and every output lies in [0, 1], as after a sigmoid; return the scores before "
            "the sigmoid. The scores of several labels per example are neither logits nor probabilities of one class"
        )
    return found


def about_one_class(
    predicted: Codes, confidence: Floats, num_classes: int, name_of: Callable[[int], str] = str
) -> list[str]:
    """Return a warning if nearly all of some examples are predicted as one class: (n,) classes and confidences.

    Of three or more classes, that is a share of :data:`ONE_CLASS`. Of two, one is often rare; so the predictions must
    also be more than the model's own probabilities explain: the others would be Σ p, more than :data:`APART_ONE`
    standard deviations away, as where it does not tell examples apart.
    """
    num = len(predicted)
    if num < FEWEST or num_classes < 2:
        return []
    classes, counts = np.unique(predicted, return_counts=True)
    most, first = int(counts.max()), int(classes[counts.argmax()])
    if most < ONE_CLASS * num:
        return []
    mean = float(np.mean(confidence))
    if num_classes == 2:
        p = np.where(predicted == first, confidence, 1 - confidence)
        if most - p.sum() <= APART_ONE * np.sqrt((p * (1 - p)).sum()):
            return []
    return [
        f"{most} of {num} examples are predicted as {name_of(first)!r}, with a mean confidence of {mean:.2f}; unless "
        "the pool is like that, check the weights, and the transform against the one of training"
    ]


def about_inputs(pool: Floats, reference: Floats) -> list[str]:
    """Return warnings if inputs of the pool and of the reference do not overlap, from k measures: (n, k), (m, k).

    Measures do not overlap if their means are :data:`APART` standard deviations apart.
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


def about_classes(
    predicted: Codes, truth: Codes, weights: Floats, names: Sequence[str], foreseen: Floats | None = None
) -> list[str]:
    """Return warnings from labels of a classification, each example once.

    ``predicted`` and ``truth`` are classes (n,), ``weights`` (n,) >= 0 those of the design, and ``names`` those of the
    C classes in the model's order. ``foreseen`` (n,) are the failure probabilities that were predicted before the
    labels, NaN where none was.
    """
    size = _scaled(weights)
    other = _best_order(predicted, truth, size, names, foreseen)
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
            f"the model is no better than chance: {100 * share:.0f} % of the labels agree with its predictions, and "
            f"{100 * chance:.0f} % would by chance; check weights, transform and the order of model.classes"
        ]
    return []


def about_values(predicted: Floats, truth: Floats, weights: Floats, outcome: Floats) -> list[str]:
    """Return warnings from labels of a regression, each example once: (n,) each, ``outcome`` the scores."""
    num = len(truth)
    zero = int(np.count_nonzero(outcome <= 0))
    if num >= FEWEST // 2 and zero >= SCORED_ZERO * num:
        middle = float(np.median(truth)), float(np.median(predicted))
        return [
            f"{zero} of {num} labels lie so far from the prediction that they score 0: half of the labels are below "
            f"{middle[0]:.4g} and half of the predictions below {middle[1]:.4g}; check that both have the same unit, "
            "and score.error_scale"
        ]
    size = _scaled(weights)
    total = float(size.sum())
    if total < JUDGED or np.ptp(truth) == 0 or np.ptp(predicted) == 0:
        return []
    from scipy.stats import rankdata

    weight, ranks = size / total, rankdata(np.stack([predicted, truth]), axis=1)  # (2, n)
    x, y = ranks - (ranks @ weight)[:, None]
    norm = float(np.sqrt((weight @ x**2) * (weight @ y**2)))
    correlation = float(weight @ (x * y)) / norm if norm > 0 else 0.0
    if correlation + 2 / np.sqrt(total) < LEAST_SKILL and correlation < 1 / np.sqrt(total):
        return [
            f"the model is no better than chance: labels and predictions have a rank correlation of {correlation:.2f}; "
            "check weights, transform and the ids of the labels"
        ]
    return []


class _Order(NamedTuple):
    """Another meaning of the predicted classes, and the question about it."""

    meaning: Codes  # (C,) class
    log_number: float  # log of how many orders of its kind there are
    question: str


def _best_order(
    predicted: Codes, truth: Codes, size: Floats, names: Sequence[str], foreseen: Floats | None
) -> str | None:
    """Return the question whether classes are in another order, if the labels fit one much better; else None."""
    total = float(size.sum())
    if total < 1:
        return None
    own = float(size[predicted == truth].sum()) / total
    best, question = own, ""
    for order in _orders(predicted, truth, size, names):  # of equal ones the first, which is the simplest
        share = float(size[order.meaning[predicted] == truth].sum()) / total
        if share <= best or share - own < LEAST_GAIN:
            continue
        if _is_clear(order, predicted, truth, size) or _is_foreseen(order, predicted, truth, foreseen):
            best, question = share, order.question
    if not question:
        return None
    return f"{_AGREE} {100 * best:.0f} % instead of {100 * own:.0f} % if {question}"


def _is_clear(order: _Order, predicted: Codes, truth: Codes, size: Floats) -> bool:
    """Return whether labels fit an order more often than the given one, and than independence explains."""
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


def _is_foreseen(order: _Order, predicted: Codes, truth: Codes, foreseen: Floats | None) -> bool:
    """Return whether predicted failures fit an order much better than the given one, and than independence."""
    if foreseen is None:
        return False
    meant = order.meaning[predicted]
    moved = (meant != predicted) & ~np.isnan(foreseen)
    if not moved.any():
        return False
    predicted, meant, truth, num = predicted[moved], meant[moved], truth[moved], len(order.meaning)
    under_order = _likelihoods(foreseen[moved], truth != meant) - np.count_nonzero(truth != meant) * np.log(num - 1)
    shares = np.bincount(truth)[truth] / len(truth)
    others = max(_likelihoods(foreseen[moved], truth != predicted).max(), float(np.log(shares).sum()))
    return bool(_log_mean(under_order) - others >= np.log(LEAST_RATIO) + order.log_number)


def _likelihoods(foreseen: Floats, failed: NDArray[np.bool_]) -> Floats:
    """Return the log-likelihood of failures (n,) for each possible error of the level of predicted ones, (δ,)."""
    p = np.clip(foreseen, 1e-6, 1 - 1e-6)
    logit = np.log(p / (1 - p)) + _LOGIT_SHIFTS[:, None]  # (δ, n)
    found: Floats = -np.logaddexp(0, np.where(failed, -logit, logit)).sum(axis=1)
    return found


def _log_mean(logs: Floats) -> float:
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))


def _orders(predicted: Codes, truth: Codes, size: Floats, names: Sequence[str]) -> Iterator[_Order]:
    """Yield the orders to try, the simplest first."""
    from scipy.special import gammaln

    num = len(names)
    if num < 2:
        return
    classes, ask = np.arange(num), "is model.classes in the model's order?"
    if (predicted != truth).any():
        first, second = _exchanged(predicted, truth, size, num)
        meaning = classes.copy()
        meaning[[first, second]] = second, first
        question = f"{names[first]!r} and {names[second]!r} change places: {ask}"
        yield _Order(meaning, float(np.log(num * (num - 1) / 2)), question)
    if num == 2:
        return
    for step in (1, -1):
        shifted = f"labels are shifted by one class ({names[step % num]!r} for {names[0]!r})"
        yield _Order((classes + step) % num, 0.0, f"{shifted}: are they numbered from 1?")
    alphabetical = np.array(sorted(range(num), key=lambda c: names[c]))
    yield _Order(alphabetical, 0.0, f"the model's classes are in alphabetical order: {ask}")
    meaning = _assigned(predicted, truth, size, num)
    moved = [f"{names[c]!r} means {names[meaning[c]]!r}" for c in np.flatnonzero(meaning != classes).tolist()]
    more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
    yield _Order(meaning, float(gammaln(num + 1)), f"{', '.join(moved[:3])}{more}: {ask}")


def _exchanged(predicted: Codes, truth: Codes, size: Floats, num: int) -> tuple[int, int]:
    """Return the two classes whose exchange the labels fit best."""
    low, high = np.minimum(predicted, truth), np.maximum(predicted, truth)
    wrong = low != high
    pairs, place = np.unique(low[wrong] * num + high[wrong], return_inverse=True)
    right = np.bincount(predicted[~wrong], weights=size[~wrong], minlength=num)
    gain = np.bincount(place, weights=size[wrong]) - right[pairs // num] - right[pairs % num]
    return divmod(int(pairs[np.argmax(gain)]), num)


def _assigned(predicted: Codes, truth: Codes, size: Floats, num: int) -> Codes:
    """Return the order of all classes that fits most labels; classes without labels keep their place."""
    from scipy.optimize import linear_sum_assignment

    seen, code = np.unique(np.concatenate([predicted, truth]), return_inverse=True)
    table = 1e-9 * np.eye(len(seen)) * max(float(size.sum()), 1.0)  # of equally good orders the one given
    np.add.at(table, (code[: len(predicted)], code[len(predicted) :]), size)
    rows, columns = linear_sum_assignment(table, maximize=True)
    meaning = np.arange(num)
    meaning[seen[rows]] = seen[columns]
    return meaning


def _scaled(weights: Floats) -> Floats:
    """Scale weights (n,) to a sum of Kish's effective size."""
    squares = float(weights @ weights)
    return weights * (weights.sum() / squares) if squares > 0 else np.ones(len(weights))


# -- predicted failures -----------------------------------------------------------------------------------------


def agreement(error: Any, spread: Any, limit: float = AGREEMENT_LIMIT) -> Any:
    """Return c, how well labels agree with their predictions, from 0 to 1.

    ``error`` is Σ(v - v̂) over the labels of a part, and ``spread`` its variance if the predictions are right.
    """
    return np.maximum(1 - error**2 / np.maximum(spread, 1e-300) / limit, 0.0)


def contradiction(selections: Sequence[Selection], outcomes: Sequence[Outcome]) -> str | None:
    """Return one sentence if the labels of 0/1 outcomes contradict their predicted failures; else None.

    Before each round every example of it had a predicted failure probability p. Assume that p is right up to its level:
    all logits are off by the same δ, at most 1.5, a factor of 4.5 of the odds. Then the labels have the likelihood
    Π p^f (1 - p)^(1 - f), and any other way to predict each label from the earlier ones has a mean ratio of 1 to that.
    Here the other way is a single failure rate, learned from the labels (R. E. Krichevsky, V. K. Trofimov, IEEE
    Transactions on Information Theory 27, 1981):

        e = [Γ(k + ½) Γ(n - k + ½) / (π Γ(n + 1))] / max_δ Π p^f (1 - p)^(1 - f)

    with k failures among the n labels so far. e ever exceeds 1/α with probability at most α (J. Ville, 1939), however
    often it is computed. Later rounds learn from the labels, so mostly the first round is contradicted.

    If most labels fail, and 1 - p predicts the failures better than the single rate does, the confidence is no lead: it
    seems to be about the other class.
    """
    failures, predicted, num = 0.0, 0.0, 0
    log_likelihood, exchanged = np.zeros(len(_LOGIT_SHIFTS)), np.zeros(len(_LOGIT_SHIFTS))
    for selection, outcome in zip(selections, outcomes, strict=True):
        prediction, failure = selection.design.prediction, 1 - np.asarray(outcome, dtype=np.float64)
        if prediction is None or FORESEEN_FROM not in selection.facts or not is_binary(failure):
            return None
        p = np.clip(prediction.labelled, 1e-6, 1 - 1e-6)
        log_likelihood += _likelihoods(p, failure > 0)
        exchanged += _likelihoods(p, failure <= 0)
        num, failures, predicted = num + len(p), failures + float(failure.sum()), predicted + float(p.sum())
        one_rate = math.lgamma(failures + 0.5) + math.lgamma(num - failures + 0.5) - math.lgamma(num + 1)
        one_rate -= math.log(math.pi)
        if one_rate - log_likelihood.max() >= math.log(LEAST_RATIO):
            found = (
                f"the labels contradict your {selections[0].facts[FORESEEN_FROM]}: {predicted:.1f} of the first {num} "
                f"labelled examples were predicted to fail, and {failures:g} did"
            )
            return found if failures > num / 2 and _log_mean(exchanged) > one_rate else found + _OF_CONFIDENCE
    return None


def without_lead(contradicted: str | None, warnings: Sequence[str]) -> str | None:
    """Return what :func:`contradiction` says; without its lead to the confidence if warnings lead to the classes."""
    if contradicted is None or not any(_AGREE in text for text in warnings):
        return contradicted
    return contradicted.replace(_OF_CONFIDENCE, "")
