"""Recompute the numbers of a pack from its labels, as `verify.py` of the pack uses them."""

import math
import re

import numpy as np
from pack_designs import Rounds, from_failures, of_strata, one_more_of_both, student, wider, wilson_ends
from scipy import special

UNEQUAL = ("stratified", "Hansen-Hurwitz", "Rao-Hartley-Cochran", "step by step")
FIELDS = ("value", "standard_error", "low", "high")


def arrays(rounds):
    return [{key: np.array(v) if isinstance(v, list) else v for key, v in item.items()} for item in rounds]


# -- accuracy of the pool -------------------------------------------------------------------------------------
def accuracy(own, level):
    """Accuracy by the designs of all rounds: value, standard error and interval."""
    rounds, size = arrays(own["rounds"]), own["pool_size"]
    design, y = Rounds(own["rounds"], size), np.concatenate([item["outcome"] for item in rounds])
    failures, labels, binary = (1 - y)[design.once].sum(), len(design.once), np.isin(y, (0, 1)).all()
    least, most = (labels - failures) / size, (size - failures) / size
    if labels == size:
        return dict(zip(FIELDS, (most, 0.0, most, most), strict=True))
    known = failures, labels, binary
    if own["kind"] == "predicted":
        value, error, *ends = by_prediction(own, rounds, design, known, level)
    elif len(rounds) == 1 or design.one:
        value, error, *ends = (design.one or design.samples[0]).estimate(y, level)
    else:
        value, error, *ends = by_rounds(design, y, known, level)
    low = min(max(ends[0], least), most)
    high = max(min(ends[1], most), least)
    if binary:
        low, high = math.floor(low * size + 1e-6) / size, math.ceil(high * size - 1e-6) / size
    return dict(zip(FIELDS, (min(max(value, low), high), error, low, high), strict=True))


def by_prediction(own, rounds, design, known, level):
    """Difference estimator of `neyman`, with failures predicted by all labels, combined over rounds."""
    size, trust = own["pool_size"], own["trust"]
    share, variance, foreseen, effect, expected, error = [], [], [], [], [], []
    f = 1 - np.concatenate([item["outcome"] for item in rounds])
    for item, sample, left, at in zip(rounds, design.samples, design.left, design.places, strict=True):
        p = item["labelled"]
        e = (f[at] - p) / np.sqrt(1 - item["leverage"])
        share.append(item["predicted"] / (left * size) + sample.mean(f[at] - p))
        variance.append(sample.variance(e)), foreseen.append(item["spread"] / size**2)
        effect.append(sample.w * np.sqrt(sample.out)), expected.append(p), error.append(e)
    v = np.array(foreseen)
    inverse = (v <= 0).astype(float) if (v <= 0).any() else 1 / v
    weight = trust * inverse / inverse.sum() + (1 - trust) * design.plan
    before = np.array([f[places].sum() for places in design.before]) / size
    total, scale = weight @ (before + design.left * np.array(share)), weight * design.left
    variance = scale**2 @ np.array(variance)
    labels = np.concatenate([w * a for w, a in zip(scale, effect, strict=True)])
    degrees = max(len(f) - len(rounds), 1)
    given = labels, np.concatenate(expected), np.concatenate(error), known[0], known[1], level, known[2]
    ends = from_failures(total, variance, *given, degrees=degrees)
    apart = total - (own["elsewhere"] + known[0]) / size  # from what predictions and labels alone state
    moved = trust * 0.5 * min(1.0, variance / max(apart**2, 1e-300)) * apart if known[2] else 0.0
    return 1 - total + moved, math.sqrt(variance), *ends


def by_rounds(design, y, known, level):
    """Accuracy from rounds of any designs."""
    f, size, scale = 1 - y, design.size, design.scale
    share, variance, effect, expected, error = 0.0, 0.0, [], [], []
    rows = zip(design.samples, design.places, design.before, design.plan, design.left, strict=True)
    for sample, at, before, w, left in rows:
        own, spread = sample.failures(f[at])
        share, variance = share + w * (f[before].sum() / size + left * own), variance + (w * left) ** 2 * spread
        if sample.predicted is None:
            rest = max(1 - sample.n / size, 0) if sample.distinct else 1.0
            effect.append(np.full(sample.n, w * left * math.sqrt(rest) / sample.n))
            expected.append(np.full(sample.n, (f[at].sum() + 0.5) / (sample.n + 1)))
        else:
            effect.append(w * left * sample.w * np.sqrt(sample.out)), expected.append(sample.predicted)
        error.append(f[at] - expected[-1])
    assisted = any(sample.predicted is not None for sample in design.samples)
    degrees = min([max(len(f) - len(design.samples), 1), *([design.degrees] if design.degrees else [])])
    given = np.concatenate(effect), np.concatenate(expected), np.concatenate(error), known[0], known[1], level, known[2]
    ends = from_failures(share, variance, *given, k=1 if assisted else 2, degrees=degrees)
    found = 1 - share, math.sqrt(variance)
    if all(sample.kind not in UNEQUAL for sample in design.samples):
        return *found, *ends
    if known[2] and all(sample.kind == "stratified" for sample in design.samples):
        x, num, sizes = np.hstack([s.counts(y[at]) for s, at in zip(design.samples, design.places, strict=True)])
        P = np.concatenate([w * s.P for w, s in zip(scale, design.samples, strict=True)])
        before = design.plan @ [y[places].sum() / size for places in design.before]
        return *found, *(before + end for end in of_strata(x, num, sizes, P, variance, level))
    bound = max(s * sample.bound for s, sample in zip(scale, design.samples, strict=True))
    both = (share, variance), (design.mean(y), design.variance(y))
    low, high = one_more_of_both(*both, bound, level, 0.5)
    return *found, *wider(ends, (1 - high, 1 - low))


# -- means over parts of the pool -----------------------------------------------------------------------------
class Share:
    """The mean of a variable in [0, 1] over a part of the pool of a known size, and its interval at any level."""

    def __init__(self, value, variance, size, labelled, events, ends, predicted=None):
        self.value, self.variance, self.size, self.labelled, self.events = value, variance, size, labelled, events
        self.error, self.ends = (0.0 if labelled >= size else math.sqrt(variance)), ends
        self.point, self.shown = min(max(value, 0.0), 1.0), value
        if predicted is not None:  # composite with what predictions alone state: their value and variance
            apart, own = predicted[0] - value, self.error**2
            self.shown += own / max(own + predicted[1], apart**2, 1e-300) * apart

    def interval(self, level):
        if self.labelled >= self.size:
            return (self.events / max(self.size, 1),) * 2
        if not self.labelled:
            return 0.0, 1.0
        least, most = self.events / self.size, 1 - (self.labelled - self.events) / self.size
        low, high = self.ends(level)
        return min(max(low, least), most), max(min(high, most), least)

    def quantiles(self):
        middle = lambda num: (2 * np.arange(num) + 1) / (2 * num)  # noqa: E731
        ends = [self.interval(1 - (2 * k + 1) / 48) for k in range(24)]
        return np.interp(middle(192), middle(48), [low for low, _ in ends] + [high for _, high in reversed(ends)])


class Parts:
    """What the labels say of groups of the pool: the examples of one slice and one predicted class each."""

    def __init__(self, own, part):
        self.own, self.rounds = own, arrays(own["rounds"])
        self.design = Rounds(own["rounds"], own["pool_size"])
        self.sizes, self.group = np.array(part["sizes"]), np.array(part["groups"])
        self.sums = np.array(part.get("sums", []))  # (rounds, 3, groups)
        self.names, self.classes = part["names"], part["classes"]
        self.slice, self.of_class = np.divmod(np.arange(len(self.sizes)), len(self.classes))
        self.f = 1 - np.concatenate([item["outcome"] for item in self.rounds])
        place = {name: number for number, name in enumerate(self.classes)}
        answers = [answer for item in own["rounds"] for answer in item["answers"]]
        self.truth = np.array([place.get(answer[2], -1) for answer in answers])
        self.said = self.of_class[self.group]

    def share(self, values, mean, square, inside):
        """Mean of a variable over the groups inside; mean and square are expected of failures in each group."""
        here = inside[self.group]
        once = self.design.once[here[self.design.once]]
        counts = self.sizes[inside].sum(), len(once), values[once].sum()
        return (self.foreseen if self.own["kind"] == "predicted" else self.by_design)(
            values, mean, square, inside, here, *counts
        )

    def foreseen(self, values, mean, square, inside, here, size, labelled, events):
        divisor, trust = max(size, 1), self.own["trust"]
        predicted, odds, squares = (self.sums[:, k][:, inside] for k in range(3))
        foreseen = np.maximum((odds @ square[inside] - squares @ mean[inside] ** 2) / divisor**2, 1e-300)
        weight = trust * (1 / foreseen) / (1 / foreseen).sum() + (1 - trust) * self.design.plan
        value = measured = first = second = expected = met = 0.0
        rows = zip(weight, self.rounds, self.design.places, self.design.before, predicted, strict=True)
        for w, item, at, before, sums in rows:
            keep = here[at]
            p, pi, h = (item[key][keep] for key in ("labelled", "probability", "leverage"))
            out, forecast = np.maximum(1 - pi, 0), p * mean[self.group[at][keep]]
            error = w / divisor * (values[at][keep] - forecast) / pi
            known = values[before][here[before]].sum()
            value += w * (known + sums @ mean[inside]) / divisor + error.sum()
            measured += (error**2 * out / (1 - h)).sum()
            effect = w / divisor * np.sqrt(out) / pi
            first, second = first + forecast @ effect, second + forecast @ effect**2
            expected, met = expected + forecast.sum(), met + values[at][keep] @ effect
        unseen = max(sums @ mean[inside] - forecast.sum(), 0)  # of the last round
        shown, near = first * met / max(second, 1e-300) + 0.5, first**2 / max(second, 1e-300) + 0.5
        more = unseen * shown / near
        own = weight**2 @ foreseen
        variance = max((labelled * measured + 20 * own) / (labelled + 20), 0.5 * own)
        half = 0.5 / max(expected, 1e-300)
        ends = wilson_ends(value, variance, labelled, events, half * first, half * second, expected)
        predicted = (events + more) / divisor, more * (1 + unseen / near) / divisor**2
        return Share(value, variance, size, labelled, events, ends, predicted)

    def by_design(self, values, mean, square, inside, here, size, labelled, events):
        design, largest = self.design, self.design.largest
        if inside.all():  # the design's own estimate
            both = (
                (design.mean(values), design.variance(values)),
                (design.mean(1 - values), design.variance(1 - values)),
            )

            def whole(level):
                widen = student(design.degrees, level) ** 2
                return one_more_of_both(*((m, v * widen) for m, v in both), largest, level)

            return Share(*both[0], size, labelled, events, whole)
        found = design.mean(here * 1.0) if here.any() else 0.0
        value = design.mean(here * values) / found if found > 0 else values.mean()
        variance = design.variance(here * (values - value) / found) if found > 0 else 0.0
        weight = largest / max(found, 1e-300)

        def ends(level):
            wide = variance * student(design.degrees, level) ** 2
            return one_more_of_both((value, wide), (1 - value, wide), weight, level)

        return Share(value, variance, size, labelled, events, ends)

    def failures(self, inside):
        """Share of failures."""
        ones, f = np.ones(len(self.sizes)), self.f
        square = 1.0
        if not np.isin(f, (0, 1)).all():
            m = max(f.mean(), 1e-9)
            square = (f @ f + 5 * m) / (f.sum() + 5 * m)
        return self.share(f, ones, ones * square, inside)

    def missed(self, c, inside):
        """Share of examples of a class that are predicted as others; which class a failure is, the labels show."""
        wrong, num = self.truth != self.said, len(self.classes)
        count = np.bincount(self.said[wrong & (self.truth == c)], minlength=num)
        prior = (np.arange(num) != c) / max(num - 1, 1)
        rivals = (5 * prior + count) / (5 + np.bincount(self.said[wrong], minlength=num))
        mean = rivals[self.of_class]
        return self.share(((self.truth == c) & wrong) * 1.0, mean, mean, inside)

    def accuracy(self, inside, level):
        share = self.failures(inside)
        low, high = share.interval(level)
        return stated(1 - share.shown, 1 - high, 1 - low, share.error)

    def of_metric(self, name, c, inside, level):
        """Metric of class c over the groups inside: a function of two totals, TP and FN."""
        pair = self.failures(inside & (self.of_class == c)), self.missed(c, inside & (self.of_class != c))
        (P, Q), g = (own.size for own in pair), METRICS.get(name) or f_score(float(name[1:]))
        of = lambda failed, missed: g(P * (1 - failed), Q * missed, P, Q)  # noqa: E731
        value = float(of(*(min(max(own.shown, 0.0), 1.0) for own in pair)))
        if (1 - level) / 2 < 1 / 48:
            ends = [np.array([own.point, *own.interval(level)]) for own in pair]
            own = float(of(pair[0].point, pair[1].point))
            moved = of(ends[0], pair[1].point) - own, of(pair[0].point, ends[1]) - own
            low, high = own - math.hypot(*map(min, moved)), own + math.hypot(*map(max, moved))
        else:
            grid = of(*np.broadcast_arrays(pair[0].quantiles()[:, None], pair[1].quantiles()[None, :]))
            low, high = np.quantile(grid, [(1 - level) / 2, (1 + level) / 2])
        low, high = max(low, -1.0 if name in ("mcc", "kappa") else 0.0), min(high, 1.0)
        return stated(value, low, high, (high - low) / (2 * special.ndtri(0.5 + level / 2)))


def stated(value, low, high, error):
    low, high = float(low), float(high)
    return dict(zip(FIELDS, (min(max(value, low), high), error, low, high), strict=True))


def over(top, bottom):
    return np.where(bottom > 0, top / np.maximum(bottom, 1e-300), 1.0)


def f_score(beta):
    return lambda tp, fn, P, Q: over((1 + beta**2) * tp, P + beta**2 * (tp + fn))


def recall(tp, fn, P, Q):
    return over(tp, tp + fn)


def specificity(tp, fn, P, Q):
    return over(Q - fn, Q - fn + P - tp)


def mcc(tp, fn, P, Q):
    spread = P * Q * (tp + fn) * (P - tp + Q - fn)
    return np.where(spread > 0, (tp * (Q - fn) - (P - tp) * fn) / np.sqrt(np.maximum(spread, 1e-300)), 0.0)


def kappa(tp, fn, P, Q):
    num, real = P + Q, tp + fn
    agreed, chance = (tp + Q - fn) / num, (P * real + Q * (num - real)) / num**2
    return np.where(chance < 1, (agreed - chance) / np.maximum(1 - chance, 1e-300), 0.0)


METRICS = {
    "precision": lambda tp, fn, P, Q: over(tp, P + 0 * tp),
    "recall": recall,
    "specificity": specificity,
    "npv": lambda tp, fn, P, Q: 1 - over(fn, Q + 0 * fn),
    "balanced_accuracy": lambda tp, fn, P, Q: (recall(tp, fn, P, Q) + specificity(tp, fn, P, Q)) / 2,
    "jaccard": lambda tp, fn, P, Q: over(tp, P + fn),
    "mcc": mcc,
    "kappa": kappa,
    "prevalence": lambda tp, fn, P, Q: (tp + fn) / (P + Q),
}


# -- ratios of totals -----------------------------------------------------------------------------------------
def ratio(text, counts, design, here, full, level):
    """Σa/Σb over the labels here, or 1 minus it, with its interval by the design."""
    from_one = re.match(r"1\s*-\s*(?=\S)", text)
    sides = [re.findall(r"(?:(\d+(?:\.\d+)?)\s*\*?\s*)?([A-Za-z_]\w*)", side) for side in text.split("/")]
    a, b = (sum(float(k or 1) * counts[name] * here for k, name in side) for side in sides)
    if full:
        value = a[design.once].sum() / b[design.once].sum() if b[design.once].sum() else 0.0
        found = value, 0.0, value, value
    elif design.mean(b) <= 0:
        return dict(zip(FIELDS, (0.5, 0.5, 0.0, 1.0), strict=True))
    else:
        found = ratio_of(design, a, b, level)
    value, error, low, high = found
    return stated(1 - value, 1 - high, 1 - low, error) if from_one else stated(value, low, high, error)


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
        given = wilson_ends(own, wide, 1 / unit, events, unit / 2, unit**2 / 2, 0.0)
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


# -- all that an estimate states ------------------------------------------------------------------------------
def others(own, document):
    """Recompute metrics, slices and classes; returns these, and the names of what is stated but not recomputed."""
    parts = {by: Parts(own, part) for by, part in own["parts"].items()}
    whole, level, found, rest = parts[""], own["level"], [], []
    everything = np.ones(len(whole.sizes), bool)
    for text, item in document["metrics"].items():
        number = metric(own, whole, text, everything, level)
        if number and own["widened"]:  # for label noise
            found.append((text, {key: number[key] for key in FIELDS[:2]}, item)), rest.append(f"the interval of {text}")
        else:
            found.append((text, number, item)) if number else rest.append(text)
    for name, item in (document["by_predicted_class"] or {}).items():
        inside = whole.of_class == whole.classes.index(name)
        found.append((f"accuracy where {name} is predicted", whole.accuracy(inside, level), item))
    for name, item in (document["by_true_class"] or {}).items():
        number = whole.of_metric("recall", whole.classes.index(name), everything, level)
        found.append((f"recall of {name}", number, item))
    for table in document["by_slice"]:
        numbers = of_slices(own, parts, table, level)
        what = f"{table['metric']} by {table['by']}"
        rest += [] if numbers else [what]
        found += [(f"{what}, {name}", number, table["slices"][name]) for name, number in numbers.items()]
    alone = ("confusion", "mean_cost", "assisted", "label_noise", "sequence", "srs")
    rest += [key for key in alone if document.get(key)] + [f"judge {name}" for name in document["judges"]]
    rest += [f"the interval of {what} if the confidence is right" for what, _, it in found if it.get("if_predicted")]
    if document["allows_for"]:
        rest.append(f"the interval to report, which also allows for {', '.join(document['allows_for'])}")
    return found, rest


def of_slices(own, parts, table, level):
    """Recompute a table of slices or classes, with the ends that hold for all of them together."""
    by, whole, found = table["by"], parts[""], {}
    for name in table["slices"]:
        part, text, inside = parts.get(by, whole), table["metric"], np.ones(len(whole.sizes), bool)
        if by == "truth":
            text = f"recall@{name}"
        elif by == "prediction":
            inside = whole.of_class == whole.classes.index(name)
        else:
            inside = part.slice == part.names.index(name)
        one, all_ = (metric(own, part, text, inside, at) for at in (level, 1 - (1 - level) / len(table["slices"])))
        if one is None:
            return {}
        ends = {"low_together": min(one["low"], all_["low"]), "high_together": max(one["high"], all_["high"])}
        found[name] = one | ends
    return found


def metric(own, part, text, inside, level):
    """A number over groups of the pool; None if it is not one that is recomputed here."""
    name, _, positive = text.partition("@")
    if text == "accuracy":
        return part.accuracy(inside, level)
    if "/" in name:
        counts = {key: np.array(values) for key, values in own["counts"].items()}
        here, once = inside[part.group], part.design.once
        full = here[once].sum() == part.sizes[inside].sum() > 0
        return ratio(text, counts, part.design, here, full, level)
    if name in METRICS or re.fullmatch(r"f\d+(\.\d+)?", name):
        c = part.classes.index(positive) if positive else 1
        return part.of_metric(name, c, inside, level)
    return None
