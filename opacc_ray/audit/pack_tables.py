"""Recompute the numbers that an estimate of a pack states besides the accuracy, as its `verify.py` does."""

import math
import re

import numpy as np
from pack_designs import student, wider, wilson_ends
from pack_numbers import METRICS, Share, average_ends, f_score, of_ends, slopes, stated
from scipy import special

FEWEST, WIDEST = 5, 0.25  # labels, and half-width, of an interval that says something


# -- metrics, slices, classes ---------------------------------------------------------------------------------
def metric(own, parts, text, inside, level, part=None):
    """A number of the pool, or of the groups inside of a part."""
    name, _, positive = text.partition("@")
    part = part or parts.get(text) or parts[""]
    inside = part.everything if inside is None else inside
    if text == "accuracy":
        return part.accuracy(inside, level)
    if "/" in name:
        counts = {key: np.array(values) for key, values in own["counts"].items()}
        here, once = inside[part.group], part.design.once
        return ratio(text, counts, part.design, here, here[once].sum() == part.sizes[inside].sum() > 0, level)
    c = part.classes.index(positive) if positive else 1
    if name.startswith("macro_"):
        return average(part, name[6:], inside, level)
    if name == "calibration_error":
        return calibration(part, level)
    return linear(part, name, c, level) if "base" in part.part else of_two(name, part.pair(c, inside), level)


def average(part, name, inside, level):
    """Mean of a metric over all classes: linearised, a misprediction moves it by a weight."""
    pairs = [part.pair(c, inside) for c in range(len(part.classes))]
    P, Q = np.array([[own.size for own in pair] for pair in pairs], float).T
    failed, missed = np.array([[own.shown for own in pair] for pair in pairs]).T
    tp, fn = P * (1 - failed), Q * missed
    g = METRICS.get(name) or f_score(float(name[1:]))
    value, by_tp, by_fn = slopes(g, tp, fn, P, Q)
    weight = (by_fn[:, None] - by_tp) * (1 - np.eye(len(P)))
    mean, square = ((part.rivals * own).sum(axis=0)[part.of_class] for own in (weight, weight**2))
    values, size = weight[part.truth, part.said], part.sizes[inside].sum()
    n = part.failures(inside).labelled
    error = size * math.sqrt(part.variance(values, mean, square, inside)) * (n < size)
    ends = average_ends(value, error, n - 1, level)
    if n < size and "trust" not in part.own:  # no event in a class: no variance
        moved = np.array([moves(g, pair, level) for pair in pairs if pair[0].size or pair[1].events])
        _, below, above = np.sqrt((moved**2).sum(axis=0)) / len(moved)
        ends = wider(ends, (max(value - below, 0.0), min(value + above, 1.0)))
    return of_ends(value, *ends, level) | {"n": n}


def moves(g, pair, level):
    """A function of two totals, and how far the ends of Zou and Donner are below and above it."""
    (P, Q), (a, b) = ((own.size for own in pair), (np.array([own.point, *own.interval(level)]) for own in pair))
    of = lambda failed, missed: g(P * (1 - failed), Q * missed, P, Q)  # noqa: E731
    own, moved = float(of(a[0], b[0])), (of(a, b[0] + 0 * a), of(a[0] + 0 * b, b))
    return own, *(math.hypot(*(end(ends) - own for ends in moved)) for end in (np.min, np.max))


def of_two(name, pair, level):
    """A function of two totals, TP and FN, with a second interval where predictions alone say much more."""
    g, lowest = METRICS.get(name) or f_score(float(name[1:])), -1.0 if name in ("mcc", "kappa") else 0.0
    (P, Q), missed = (own.size for own in pair), pair[1]
    of = lambda failed, missed: g(P * (1 - failed), Q * missed, P, Q)  # noqa: E731

    def ends(pair):
        if (1 - level) / 2 < 1 / 48 or name in ("precision", "npv"):
            own, below, above = moves(g, pair, level)
            return own - below, own + above
        grid = of(*np.broadcast_arrays(pair[0].quantiles()[:, None], pair[1].quantiles()[None, :]))
        return np.quantile(grid, [(1 - level) / 2, (1 + level) / 2])

    num = pair[0].labelled + missed.labelled
    found = of_ends(float(of(pair[0].shown, missed.median)), *ends(pair), level, lowest) | {
        "n": num,
        "if_predicted": None,
    }
    if missed.alone is not None and missed.alone.unseen > 0:
        low, high = map(float, ends((pair[0], missed.alone)))
        if found["high"] - found["low"] > 1.5 * (high - low):
            most = missed.size * missed.alone.interval(level)[1] - missed.events
            settle = math.log((1 - level) / 2) / math.log1p(-min((most + 1) / missed.size, 0.5))
            second = {"factor": most / missed.alone.unseen, "labels": min(math.ceil(settle), missed.size)}
            found["if_predicted"] = second | {"value": min(max(found["value"], low), high), "low": low, "high": high}
    return found


def linear(part, name, c, level):
    """A number that is a mean of events with a coefficient for each example: of the confidence."""
    values, mean = part.f, np.ones(len(part.sizes))
    if name in ("auc", "average_precision"):
        values = np.where(part.said == c, values, (part.truth == c) & (part.said != c))
        mean = np.where(part.of_class == c, 1.0, part.rivals[c][part.of_class])
    share, lowest = part.share(values, mean, mean, part.everything), -1.0 if name == "overconfidence" else 0.0
    value, variance = part.part["base"] + share.value, part.variance(values, mean, mean, part.everything)
    ends = [value, value]
    if lowest < 0:  # mean confidence less accuracy
        value, *ends = (part.part["base"] + own for own in (share.shown, *share.interval(level)))
    elif share.labelled < share.size:
        below, above = share.half
        wide = math.sqrt(variance), share.labelled - 1, level
        ends = average_ends(value - below, *wide)[0], average_ends(value + above, *wide)[1]
    return of_ends(value, *ends, level, lowest) | {"n": share.labelled}


def calibration(part, level):
    """Calibration error, by bins of the confidence."""
    shares = [part.failures(part.slice == b) for b in range(len(part.names))]
    size, z = np.array([own.size for own in shares]) / part.sizes.sum(), lambda level: special.ndtri(0.5 + level / 2)
    gap = np.array(part.part["confidence"]) - 1 + [own.value for own in shares]
    ends = np.array([own.interval(level) for own in shares])
    error = (ends[:, 1] - ends[:, 0]) / (2 * z(level))
    plain, noise, apart = size @ np.abs(gap), size * error, np.minimum(np.abs(gap) / np.maximum(error, 1e-300), 40)
    mean = error * math.sqrt(2 / math.pi) * np.exp(-(apart**2) / 2) + np.abs(gap) * (2 * special.ndtr(apart) - 1)
    spread, quarter = math.sqrt(noise @ noise), (1 + level) / 2
    random = np.abs(np.random.default_rng(0).standard_normal((20_000, len(noise)))) @ noise
    low = max(plain - np.quantile(random, (1 + quarter) / 2), abs(size @ gap) - z(quarter) * spread, 0.0)
    value, high = max(2 * plain - size @ mean, 0.0), min(plain + z(level) * spread, 1.0)
    return of_ends(value, low, high, level) | {"n": sum(own.labelled for own in shares)}


def of_slices(own, parts, table, level):
    """A table of slices or classes, with the ends that hold for all of them together."""
    by, found, levels = table["by"], {}, (level, 1 - (1 - level) / len(table["slices"]))
    part = parts.get(by) or parts[""]
    for name in table["slices"]:
        if by == "truth":
            c = part.classes.index(name)
            wanted, pair, inside = f"recall@{name}", part.pair(c, part.everything), None
            size, more = round(sum(totals(pair))), {"n": int((part.truth == c).sum())}
        else:
            of_class = by == "prediction"
            inside = part.of_class == part.classes.index(name) if of_class else part.slice == part.names.index(name)
            wanted, size, more = table["metric"], part.sizes[inside].sum(), {}
        one, all_ = (metric(own, parts, wanted, inside, at, part) | more for at in levels)
        ends = {"low_together": min(one["low"], all_["low"]), "high_together": max(one["high"], all_["high"])}
        tells = one["low"] == one["high"] or (one["n"] >= FEWEST and one["high"] - one["low"] <= 2 * WIDEST)
        found[name] = {"if_predicted": None} | one | ends | {"size": size, "tells": tells}
    return found


def totals(pair):
    """TP and FN."""
    failed, missed = pair
    return failed.size * (1 - failed.shown), missed.size * missed.median


def of_classes(whole, level):
    """Accuracy by predicted class, recall by true class, and the confusion matrix."""
    seen, names = np.unique(np.r_[whole.truth, whole.said]), whole.classes
    sizes = {name: int(own) for name, own in zip(names, whole.sizes, strict=True) if own}
    of_true = {c: of_two("recall", whole.pair(c, whole.everything), level) for c in np.unique(whole.truth)}
    size, rest = whole.sizes[seen] / whole.sizes.sum(), (whole.truth != whole.said) & ~np.isin(whole.truth, seen)
    other = np.clip(1 - whole.rivals[seen].sum(axis=0), 0, 1)[whole.of_class]
    cells = [[whole.missed(k, whole.of_class == c) for c in seen] for k in seen]
    lost = [whole.share(rest * 1.0, other, other, whole.of_class == c) for c in seen]
    failed = [whole.failures(whole.of_class == c) for c in seen]
    share = np.array([[own.shown for own in row] for row in (*cells, lost)])
    share *= size * np.array([own.shown for own in failed]) / np.maximum(share.sum(axis=0), 1e-300)
    error = np.array([[own.error for own in row] for row in cells]) * size
    right = np.array([own.error for own in failed]) * size
    num = np.zeros((len(names), len(names)), int)
    np.add.at(num, (whole.truth, whole.said), 1)
    confusion = {
        "share": (share[:-1] + np.diag(np.maximum(size - share.sum(axis=0), 0))).tolist(),
        "standard_error": (error + np.diag(right)).tolist(),
        "num": num[seen][:, seen].tolist(),
    }
    return {
        "pool_by_predicted_class": sizes,
        "by_predicted_class": {names[c]: whole.accuracy(whole.of_class == c, level) for c in np.unique(whole.said)},
        "by_true_class": {names[c]: own | {"n": int((whole.truth == c).sum())} for c, own in of_true.items()},
        "confusion": confusion,
    }


def mean_cost(own, whole, costs, said, level):
    """Mean cost per example; it follows from the accuracy if every error costs the same."""
    names, table = whole.classes, np.ones((len(whole.classes),) * 2)
    for true, cost in costs.items():
        for predicted, value in (cost if isinstance(cost, dict) else dict.fromkeys(names, cost)).items():
            if true in names and predicted in names:
                table[names.index(true), names.index(predicted)] = value
    errors = table[~np.eye(len(names), dtype=bool)]
    if own["classes_known"] and len(set(errors)) == 1:
        failed = stated(1 - said["value"], 1 - said["high"], 1 - said["low"], said["standard_error"])
        return {key: errors[0] * value for key, value in failed.items()} | {"n": said["n"]}
    most = (table * (1 - np.eye(len(names)))).max()
    table = table * (1 - np.eye(len(names))) / most
    mean, square = ((whole.rivals * part).sum(axis=0)[whole.of_class] for part in (table, table**2))
    share = whole.share(table[whole.truth, whole.said], mean, square, whole.everything)
    found = stated(share.value, *share.interval(level), share.error)
    return {key: most * value for key, value in found.items()} | {"n": share.labelled}


def of_judge(part, level):
    """What a judge is worth: the answers that it calls wrong, right, or has not judged are three slices."""
    said_wrong, said_right, unknown = (part.failures(part.slice == k) for k in range(3))
    pair, judged = (said_right, said_wrong.of_others()), part.sizes.sum() - unknown.size
    found = {"judged": judged, "labels": pair[0].labelled + pair[1].labelled}
    found["says_right"] = said_right.size / max(judged, 1)
    names = {"sensitivity": "recall", "specificity": "specificity", "kappa": "kappa"}
    return found | {key: of_two(name, pair, level) for key, name in names.items()}


# -- ratios of totals -----------------------------------------------------------------------------------------
FROM_ONE = r"1\s*-\s*(?=\S)"


def sides(text, counts):
    """Both sums of a ratio, from counts by name."""
    terms = [re.findall(r"(?:(\d+(?:\.\d+)?)\s*\*?\s*)?([A-Za-z_]\w*)", side) for side in text.split("/")]
    return [sum(float(k or 1) * counts[name] for k, name in side) for side in terms]


def ratio_effect(text, counts, design):
    """What an example adds to a ratio, by its counts."""
    a, b = (design.mean(side) for side in sides(text, {name: np.array(own) for name, own in counts.items()}))

    def value(given):
        top, bottom = sides(text, given)
        return (top - a / max(b, 1e-300) * bottom) / max(b, 1e-300)

    return value


def ratio(text, counts, design, here, full, level):
    """Σa/Σb over the labels here, or 1 minus it, with its interval by the design."""
    n, from_one = len(np.unique(design.index[here])), re.match(FROM_ONE, text)
    a, b = (side * here for side in sides(text, counts))
    if full:
        value = a[design.once].sum() / b[design.once].sum() if b[design.once].sum() else 0.0
        found = value, 0.0, value, value
    elif design.mean(b) <= 0:
        return stated(0.5, 0.0, 1.0, 0.5) | {"n": n}
    else:
        found = ratio_of(design, a, b, level)
    value, error, low, high = found
    own = stated(1 - value, 1 - high, 1 - low, error) if from_one else stated(value, low, high, error)
    return own | {"n": n}


def ratio_of(design, a, b, level):
    whole = design.mean(b)
    value, degrees = design.mean(a) / whole, design.degrees or max(len(a) - 1, 1)
    variance = design.variance((a - value * b) / whole)
    most = max(1.0, np.max(a / np.maximum(b, 1e-300), where=b > 0, initial=0.0))
    weights = np.maximum(design.w, 0)
    share, left = weights * b / whole, min(design.largest / max(weights.max(), 1e-300), 1.0)
    unit = max(left * (share @ share) / max(share.sum(), 1e-300), 1e-300)
    wide = variance / most**2 * student(degrees, level) ** 2

    def ends(part):
        own, events = design.mean(part) / whole, (part > 0).sum()
        given = wilson_ends(own, wide + unit**2 / 2, 1 / unit, events, unit / 2, 0.0)
        return Share(own, wide, math.inf, 1 / unit, events, given).interval(level)

    few, many = ends(b - a / most)
    low, high = (most * end for end in wider(ends(a / most), (1 - many, 1 - few)))
    if most > 1:  # Fieller's: the denominator may be uncertain
        z = special.stdtrit(degrees, 0.5 + level / 2) ** 2
        A, va, vb, both = design.mean(a), design.variance(a), design.variance(b), design.variance(a + b)
        second, first, rest = whole**2 - z * vb, A * whole - z * (both - va - vb) / 2, A**2 - z * va
        if second <= 0:
            half = math.sqrt(z * variance)
            own = max(value - half, 0.0), value + half
        else:
            half = math.sqrt(max(first**2 - second * rest, 0.0))
            own = max((first - half) / second, 0.0), (first + half) / second
        low, high = wider((low, high), own)
    return value, math.sqrt(variance), low, high


def effects(part, name, c):
    """How far an example moves a metric, by its true and its predicted class: the metric linearised."""
    averaged, design = name.startswith("macro_"), part.design
    name, classes = name.removeprefix("macro_"), np.arange(len(part.classes)) if averaged else np.array([c])
    P = np.array([part.sizes[part.of_class == own].sum() for own in classes], float)
    size, half = part.sizes.sum(), 0.5 * design.w.mean() * (design.largest > 0)
    both = []
    for here, event in ((part.said[:, None] == classes, part.truth[:, None] != classes),):
        for member, own in ((here, event), (~here, ~event)):
            found = np.maximum([design.mean(x) for x in member.T * 1.0], 1e-300)
            share = np.array([design.mean(x) for x in (member & own).T * 1.0]) / found
            both.append(np.minimum(share + half / found, 1))
    g = METRICS.get(name) or f_score(float(name[1:]))
    _, by_tp, by_fn = slopes(g, P * (1 - both[0]), (size - P) * both[1], P, size - P)
    effect = np.zeros((len(part.classes),) * 2)
    effect[classes, :] += by_fn[:, None]
    effect[:, classes] -= by_tp
    return size * effect * (1 - np.eye(len(effect)))
