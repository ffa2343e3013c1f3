"""Recompute the accuracy, and the numbers of slices and classes, from the labels of a pack, as its `verify.py` does."""

import math

import numpy as np
from pack_designs import Rounds, from_failures, of_strata, one_more_of_both, student, wider, wilson, wilson_ends
from scipy import special, stats

UNEQUAL = ("stratified", "Hansen-Hurwitz", "Rao-Hartley-Cochran", "step by step")
FIELDS = ("value", "standard_error", "low", "high")


def arrays(rounds):
    return [{key: np.array(v) if isinstance(v, list) else v for key, v in item.items()} for item in rounds]


# -- accuracy of the pool -------------------------------------------------------------------------------------
def accuracy(own, level, moved=lambda found: found):
    """Accuracy by the designs of all rounds: value, standard error and interval, cut to what the labels prove."""
    rounds, size = arrays(own["rounds"]), own["pool_size"]
    design, y = Rounds(own["rounds"], size), np.concatenate([item["outcome"] for item in rounds])
    failures, labels, binary = (1 - y)[design.once].sum(), len(design.once), np.isin(y, (0, 1)).all()
    least, most = (labels - failures) / size, (size - failures) / size
    if labels == size:
        return stated(most, most, most, 0.0) | {"n": len(y)}
    known = failures, labels, binary
    if "trust" not in own and (len(rounds) == 1 or design.one):
        found = (design.one or design.samples[0]).estimate(y, level)
    else:
        found = by_rounds(own, rounds, design, y, known, level)
    value, error, low, high = moved(found)
    low, high = min(max(low, least), most), max(min(high, most), least)
    if binary:
        low, high = math.floor(low * size + 1e-6) / size, math.ceil(high * size - 1e-6) / size
    return stated(value, low, high, error) | {"n": len(y)}


def of_round(item, sample, f, left, size, is_fitted):
    """Share of failures of one round and its variance; of each label its effect, expected failure, and error."""
    if is_fitted:  # by all labels, those of later rounds included
        p = item["labelled"]
        error = (f - p) / np.sqrt(1 - item["leverage"])
        share, variance = item["predicted"] / (left * size) + sample.mean(f - p), sample.variance(error)
        return share, variance, sample.w * np.sqrt(sample.out), p, error
    share, variance = sample.failures(f)
    if sample.predicted is not None:
        return share, variance, sample.w * np.sqrt(sample.out), sample.predicted, f - sample.predicted
    rest = max(1 - sample.n / size, 0) if sample.distinct else 1.0
    p = np.full(sample.n, (f.sum() + 0.5) / (sample.n + 1))
    return share, variance, np.full(sample.n, math.sqrt(rest) / sample.n), p, f - p


def by_rounds(own, rounds, design, y, known, level):
    """Accuracy from rounds of any designs; of `neyman`, with failures predicted by all labels."""
    f, size, trust, weight = 1 - y, design.size, own.get("trust"), design.plan
    rows = zip(rounds, design.samples, design.places, design.left, strict=True)
    found = [of_round(item, sample, f[at], left, size, trust is not None) for item, sample, at, left in rows]
    shares, spreads, effect, expected, error = zip(*found, strict=True)
    if trust is not None:
        foreseen = np.array([item["spread"] for item in rounds]) / size**2
        inverse = (foreseen <= 0).astype(float) if (foreseen <= 0).any() else 1 / foreseen
        weight = trust * inverse / inverse.sum() + (1 - trust) * weight
    scale, before = weight * design.left, np.array([f[places].sum() for places in design.before]) / size
    share, variance = weight @ before + scale @ np.array(shares), scale**2 @ np.array(spreads)
    effect = np.concatenate([w * own for w, own in zip(scale, effect, strict=True)])
    assisted = trust is not None or any(sample.predicted is not None for sample in design.samples)
    degrees = min([max(len(f) - len(rounds), 1), *([design.degrees] if design.degrees else [])])
    given = effect, np.concatenate(expected), np.concatenate(error), known[0], known[1], level, known[2]
    ends, result = (
        from_failures(share, variance, *given, 1 if assisted else 2, degrees),
        (1 - share, math.sqrt(variance)),
    )
    if trust is not None:  # moved towards what predictions and labels alone state, if they foresee the labels' failures
        apart, p, e = share - (own["elsewhere"] + known[0]) / size, given[1], given[2]
        agreed = max(1 - 2 * e.sum() ** 2 / max(p @ (1 - p), 1e-300), 0.0) if known[2] else 0.0
        moved = trust * 0.5 * agreed * min(1.0, variance / max(apart**2, 1e-300)) * apart
        return result[0] + moved, result[1], *ends
    if all(sample.kind not in UNEQUAL for sample in design.samples):
        return *result, *ends
    if known[2] and all(sample.kind == "stratified" for sample in design.samples):
        x, num, sizes = np.hstack([s.counts(y[at]) for s, at in zip(design.samples, design.places, strict=True)])
        P = np.concatenate([w * s.P for w, s in zip(scale, design.samples, strict=True)])
        constant = design.plan @ [y[places].sum() / size for places in design.before]
        return *result, *(constant + end for end in of_strata(x, num, sizes, P, variance, level))
    bound = max(s * sample.bound for s, sample in zip(scale, design.samples, strict=True))
    both = (share, variance), (design.mean(y), design.variance(y))
    low, high = one_more_of_both(*both, bound, level, 0.5)
    return *result, *wider(ends, (1 - high, 1 - low))


# -- means over parts of the pool -----------------------------------------------------------------------------
def middle(num):
    return (2 * np.arange(num) + 1) / (2 * num)


class Share:
    """The mean of a variable in [0, 1] over a part of the pool of a known size, and its interval at any level."""

    def __init__(self, value, variance, size, labelled, events, ends, alone=None, half=(0.0, 0.0)):
        self.value, self.variance, self.size, self.labelled, self.events = value, variance, size, labelled, events
        self.error, self.ends, self.alone = (0.0 if labelled >= size else math.sqrt(variance)), ends, alone
        self.point, self.shown = min(max(value, 0.0), 1.0), self.moved_to(alone and alone.value)
        self.median, self.half = self.moved_to(alone and alone.median), half

    def moved_to(self, goal):
        """Composite with what predictions alone state; None: the value by labels."""
        apart, own = 0.0 if goal is None else goal - self.value, self.error**2
        weight = own / max(own + self.alone.error**2, apart**2, 1e-300) if apart else 0.0
        return min(max(self.value + weight * apart, 0.0), 1.0)

    def interval(self, level):
        if self.labelled >= self.size:
            return (self.events / max(self.size, 1),) * 2
        if not self.labelled:
            return 0.0, 1.0
        least, most = self.events / self.size, 1 - (self.labelled - self.events) / self.size
        low, high = self.ends(level)
        return min(max(low, least), most), max(min(high, most), least)

    def quantiles(self):
        ends = [self.interval(1 - (2 * k + 1) / 48) for k in range(24)]
        return np.interp(middle(192), middle(48), [low for low, _ in ends] + [high for _, high in reversed(ends)])

    def of_others(self):
        """The mean of 1 - the variable."""
        args = 1 - self.value, self.variance, self.size, self.labelled, self.labelled - self.events
        return Share(*args, lambda level: tuple(1 - end for end in reversed(self.interval(level))))


def of_signs(likely, effect):
    """Sums of |effect|, its square and its fourth power, of those below and above 0, (2, 3)."""
    return np.array([[likely @ np.maximum(sign * effect, 0) ** k for k in (1, 2, 4)] for sign in (-1, 1)])


def half_event(signed):
    return [0.5 * two / max(one, 1e-300) for one, two, _ in signed]


class Alone:
    """The same mean if predictions hold where no label is, up to one factor: events there are negative binomial."""

    def __init__(self, size, labelled, events, met, near, unseen):
        self.size, self.labelled, self.events, self.met, self.near = size, labelled, events, met + 0.5, near + 0.5
        self.unseen, more = unseen, unseen * self.met / self.near
        self.value = (events + more) / max(size, 1)
        self.median = (events + unseen * special.gammaincinv(self.met, 0.5) / self.near) / max(size, 1)
        self.error = math.sqrt(more * (1 + unseen / self.near)) / max(size, 1)
        self.point = min(max(self.value, 0.0), 1.0)

    def at(self, chances):
        if self.labelled >= self.size or self.unseen <= 0:
            return np.full(len(chances), self.events / max(self.size, 1))
        found = stats.nbinom.ppf(chances, self.met - 0.5 + chances, self.near / (self.near + self.unseen))
        return np.minimum((self.events + found) / self.size, 1.0)

    def interval(self, level):
        return tuple(self.at(np.array([(1 - level) / 2, (1 + level) / 2])))

    def quantiles(self):
        return self.at(middle(192))


class Parts:
    """What the labels say of groups of the pool: the examples of one slice and one predicted class each."""

    def __init__(self, own, part):
        self.own, self.rounds, self.part = own, arrays(own["rounds"]), part
        self.design = Rounds(own["rounds"], own["pool_size"])
        self.sizes, self.group = np.array(part["sizes"]), np.array(part["groups"])
        self.sums = np.array(part.get("sums", []))  # (rounds, 3, groups)
        self.names, self.classes = part["names"], part["classes"]
        self.slice, self.of_class = np.divmod(np.arange(len(self.sizes)), len(self.classes))
        self.everything = np.ones(len(self.sizes), bool)
        self.f = 1 - np.concatenate([item["outcome"] for item in self.rounds])
        self.factor = np.array(part.get("coefficient", np.ones(len(self.f))))
        place = {name: number for number, name in enumerate(self.classes)}
        answers = [answer for item in own["rounds"] for answer in item["answers"]]
        self.truth = np.array([place.get(answer[2], -1) for answer in answers])
        self.said = self.of_class[self.group]
        wrong, num = self.truth != self.said, len(self.classes)
        count = np.zeros((num, num))
        np.add.at(count, (self.truth[wrong], self.said[wrong]), 1)
        # which class a failure is, by the labels: (C true, C predicted)
        self.rivals = (5 * (1 - np.eye(num)) / max(num - 1, 1) + count) / (5 + count.sum(axis=0))

    def share(self, values, mean, square, inside):
        """Mean of a variable over the groups inside; mean and square are expected of failures in each group."""
        here = inside[self.group]
        once = self.design.once[here[self.design.once]]
        counts = self.sizes[inside].sum(), len(once), values[once].sum()
        if "trust" in self.own:
            return self.foreseen(values, mean, square, inside, here, *counts)
        half = half_event(of_signs(mean[self.group], self.design.w * self.factor))
        return self.by_design(values * self.factor, inside, here, *counts, half)

    def variance(self, values, mean, square, inside):
        """Variance of the mean of any variable; by a design with half an event, for those that no label has shown."""
        if "trust" in self.own:
            return self.share(values, mean, square, inside).variance
        here, x = inside[self.group], values * self.factor
        found = self.design.mean(here * 1.0)
        if found <= 0:
            return 0.0
        size = np.mean((square[self.group] * self.factor**2)[here])
        own = self.design.variance(here * (x - self.design.mean(here * x) / found) / found)
        return own + 0.5 * (self.design.largest / found) ** 2 * size

    def foreseen(self, values, mean, square, inside, here, size, labelled, events):
        divisor, trust = max(size, 1), self.own["trust"]
        predicted, odds, squares = (self.sums[:, k][:, inside] for k in range(3))
        foreseen = np.maximum((odds @ square[inside] - squares @ mean[inside] ** 2) / divisor**2, 1e-300)
        weight = trust * (1 / foreseen) / (1 / foreseen).sum() + (1 - trust) * self.design.plan
        value = measured = first = second = expected = met = signed = 0.0
        rows = zip(
            weight, self.rounds, self.design.samples, self.design.places, self.design.before, predicted, strict=True
        )
        for w, item, sample, at, before, sums in rows:
            keep = here[at]
            p, pi, h = item["labelled"][keep], sample.pi[keep], item["leverage"][keep]
            out, forecast, factor = np.maximum(1 - pi, 0), p * mean[self.group[at][keep]], self.factor[at][keep]
            error = w / divisor * factor * (values[at][keep] - forecast) / pi
            known = (self.factor * values)[before][here[before]].sum()
            value += w * (known + sums @ mean[inside]) / divisor + error.sum()
            measured += (error**2 * out / (1 - h)).sum()
            effect = w / divisor * factor * np.sqrt(out) / pi
            first, second, signed = (
                first + forecast @ effect,
                second + forecast @ effect**2,
                signed + of_signs(forecast, effect),
            )
            expected, met = expected + forecast.sum(), met + values[at][keep] @ effect
        unseen = max(sums @ mean[inside] - forecast @ factor, 0)  # of the last round
        own = weight**2 @ foreseen
        variance = max((labelled * measured + 20 * own) / (labelled + 20), 0.5 * own)
        if np.ptp(self.factor) > 0:  # events differ in size
            few = 2 * signed[:, 1].sum() ** 2 / max(signed[:, 2].sum(), 1e-300)
            variance = max(variance, (few * measured + 20 * own) / (few + 20))
        half, near = 0.5 / max(expected, 1e-300), first / max(second, 1e-300)
        differs = ((values > 0) & (values < 1)).any() or not np.array_equal(mean, square)  # events, in size
        ends = wilson_ends(value, variance + half * second * differs, labelled, events, half * first, expected)
        alone = Alone(size, labelled, events, near * met, near * first, unseen)
        return Share(value, variance, size, labelled, events, ends, alone, half_event(signed))

    def by_design(self, values, inside, here, size, labelled, events, half):
        design, largest = self.design, self.design.largest
        if inside.all():  # the design's own estimate
            both = [(design.mean(x), design.variance(x)) for x in (values, 1 - values)]
        else:
            found = design.mean(here * 1.0) if here.any() else 0.0
            value = design.mean(here * values) / found if found > 0 else values.mean()
            variance = design.variance(here * (values - value) / found) if found > 0 else 0.0
            both, largest = [(value, variance), (1 - value, variance)], largest / max(found, 1e-300)

        def ends(level):
            widen = student(design.degrees, level) ** 2
            return one_more_of_both(*((m, v * widen) for m, v in both), largest, level)

        return Share(*both[0], size, labelled, events, ends, half=half)

    def failures(self, inside):
        """Share of failures."""
        ones, f = np.ones(len(self.sizes)), self.f
        square = 1.0
        if not np.isin(f, (0, 1)).all():
            m = max(f.mean(), 1e-9)
            square = (f @ f + 5 * m) / (f.sum() + 5 * m)
        return self.share(f, ones, ones * square, inside)

    def missed(self, c, inside):
        """Share of examples of a class that are predicted as others."""
        mean = self.rivals[c][self.of_class]
        return self.share(((self.truth == c) & (self.truth != self.said)) * 1.0, mean, mean, inside)

    def accuracy(self, inside, level):
        share = self.failures(inside)
        low, high = share.interval(level)
        return stated(1 - share.shown, 1 - high, 1 - low, share.error) | {"n": share.labelled}

    def pair(self, c, inside):
        return self.failures(inside & (self.of_class == c)), self.missed(c, inside & (self.of_class != c))


def slopes(g, tp, fn, P, Q):
    """Mean of a metric over classes, and its derivatives by TP and FN of each."""
    there, step = (P > 0) | (fn > 0), 1e-6 * max(P.sum(), 1.0)
    num = max(there.sum(), 1)

    def slope(a, b):
        moved = g(tp + a, fn + b, P, Q) - g(np.maximum(tp - a, 0), np.maximum(fn - b, 0), P, Q)
        return np.where(there, moved / np.maximum(a + np.minimum(tp, a) + b + np.minimum(fn, b), 1e-300), 0.0) / num

    return np.where(there, g(tp, fn, P, Q), 0.0).sum() / num, slope(step, 0.0), slope(0.0, step)


def average_ends(value, error, degrees, level):
    half = special.stdtrit(max(degrees, 1.0), 0.5 + level / 2) * error
    if error <= 0:
        return value, value
    nearest = min(error, 0.5)
    inside = min(max(value, nearest), 1 - nearest)
    size = inside * (1 - inside) * (special.ndtri(0.5 + level / 2) / half) ** 2
    return wilson(min(max(value, 0.0), 1.0), size, level)


def of_ends(value, low, high, level, lowest=0.0):
    """A number with its interval; its standard error is that of a normal one."""
    low, high = max(low, lowest), min(high, 1.0)
    return stated(value, low, high, (high - low) / (2 * special.ndtri(0.5 + level / 2)))


def stated(value, low, high, error):
    low, high = float(low), float(high)
    return dict(zip(FIELDS, (min(max(value, low), high), error, low, high), strict=True))


def over(top, bottom):
    return np.where(bottom > 0, top / np.maximum(bottom, 1e-300), 1.0)


def f_score(beta):
    return lambda tp, fn, P, Q: over((1 + beta**2) * tp, P + beta**2 * (tp + fn))


def precision(tp, fn, P, Q):
    return np.where(P > 0, over(tp, P + 0 * tp), fn <= 0)


def recall(tp, fn, P, Q):
    return over(tp, tp + fn)


def specificity(tp, fn, P, Q):
    return over(Q - fn, Q - fn + P - tp)


def mcc(tp, fn, P, Q):
    spread = P * Q * (tp + fn) * (P - tp + Q - fn)
    return np.where(spread > 0, (tp * (Q - fn) - (P - tp) * fn) / np.sqrt(np.maximum(spread, 1e-300)), 0.0)


def kappa(tp, fn, P, Q):
    fp, tn = P - tp, Q - fn
    spread = P * (fp + tn) + Q * (tp + fn)
    return np.where(spread > 0, 2 * (tp * tn - fp * fn) / np.maximum(spread, 1e-300), 0.0)


METRICS = {
    "precision": precision,
    "recall": recall,
    "specificity": specificity,
    "npv": lambda tp, fn, P, Q: precision(Q - fn, P - tp, Q, P),
    "balanced_accuracy": lambda tp, fn, P, Q: (recall(tp, fn, P, Q) + specificity(tp, fn, P, Q)) / 2,
    "jaccard": lambda tp, fn, P, Q: over(tp, P + fn),
    "mcc": mcc,
    "kappa": kappa,
    "prevalence": lambda tp, fn, P, Q: (tp + fn) / (P + Q),
}
