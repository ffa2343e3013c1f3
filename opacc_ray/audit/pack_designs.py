"""How samples of each design stand for a pool, and the intervals of a share, as `verify.py` of a pack uses them."""

import math

import numpy as np
from scipy import optimize, special


# -- intervals ------------------------------------------------------------------------------------------------
def wilson(mean, size, level):
    z = special.ndtri(0.5 + level / 2) ** 2
    centre, half = mean + z / (2 * size), math.sqrt(z * (mean * (1 - mean) / size + z / (4 * size * size)))
    return max(0.0, (centre - half) / (1 + z / size)), min(1.0, (centre + half) / (1 + z / size))


def mid_p_low(count, size, level):
    most, left = min(count / size, 1.0), max(size - count, 0.0)

    def excess(share):
        more = special.betainc(count + 1, left, share) if left else 0.0
        return (special.betainc(count, left + 1, share) + more - (1 - level)) / 2

    return optimize.brentq(excess, 0.0, most, xtol=1e-9) if excess(most) > 0 else most


def student(degrees, level):
    return special.stdtrit(degrees, 0.5 + level / 2) / special.ndtri(0.5 + level / 2) if degrees else 1.0


def wider(one, other):
    return min(one[0], other[0]), max(one[1], other[1])


def first(low, high, holds):
    """The first whole number between two from which on something holds."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def exact(successes, n, size, level):
    """Ends of the shares that neither one-sided hypergeometric test rejects."""
    lg = special.gammaln

    def at_most(k, events):  # P(X <= k)
        x = np.arange(max(0, n + events - size), k + 1)
        if len(x) == 0:
            return 0.0
        ways = lg(events + 1) - lg(x + 1) - lg(events - x + 1) + lg(size - events + 1)
        ways = ways - lg(n - x + 1) - lg(size - events - n + x + 1)
        return float(np.exp(ways - (lg(size + 1) - lg(n + 1) - lg(size - n + 1))).sum())

    tail = (1 - level) / 2
    least, most = successes, size - (n - successes)
    low = first(least, most, lambda M: at_most(n - successes, size - M) > tail)
    return low / size, -first(-most, -least, lambda M: at_most(successes, -M) > tail) / size


def beta(mean, variance):
    """Parameters of the beta distribution with these moments; None if there is none."""
    size = mean * (1 - mean) / variance - 1 if variance > 0 and mean < 1 else 0.0
    return (mean * size, (1 - mean) * size) if mean > 0 and size > 0 else None


def beta_quantile(chance, mean, variance):
    own = beta(mean, variance)
    return special.betaincinv(*own, chance) if own else float(mean > 0)


def one_more(y, variance, w, level, unseen=1.0):
    """Weighted Clopper-Pearson: as if one more failure of the largest weight w were there, with a probability."""
    if w == 0:
        return y, y
    tail, shrink = (1 - level) / 2, (1 + w) ** 2 * (1 + 2 * w)
    mean, spread = y / (1 + w), (variance + (w * y) ** 2) / shrink
    low = special.gammaincinv(mean**2 / spread, tail) * spread / mean if mean > 0 else 0.0
    more = (y + w) / (1 + w), (variance + (w * (1 - y)) ** 2) / shrink
    high = beta_quantile(1 - tail, *more)

    def beyond(q):
        tails = [1 - special.betainc(*own, q) if (own := beta(*m)) else float(q < m[0]) for m in (more, (y, variance))]
        return unseen * tails[0] + (1 - unseen) * tails[1] - tail

    low = min(low, beta_quantile(tail, mean, spread))
    return low, optimize.brentq(beyond, 0.0, high, xtol=1e-12) if unseen < 1 and beyond(high) < 0 else high


def one_more_of_both(share, rest, w, level, unseen=1.0):
    """The same for a share and that of all others, each with its variance."""
    low, high = one_more(max(share[0], 0.0), share[1], w, level, unseen)
    if share[0] <= rest[0] + 1e-9:
        return low, high
    return low, max(high, 1 - one_more(max(rest[0], 0.0), rest[1], w, level)[0])


def of_strata(x, n, N, P, variance, level):
    """Score interval of stratified samples: x successes among n labels of N examples, a share P of the pool."""
    full = n >= N
    known, (x, n, N, P) = P[full] @ (x / n)[full], (own[~full] for own in (x, n, N, P))
    if full.all():
        return known, known
    whole, shares, z = P.sum(), P / P.sum(), special.ndtri(0.5 + level / 2)
    mean, weights = shares @ (x / n), shares**2 * (1 - n / N) * n / np.maximum(n - 1, 0.5) / n

    def end(sign):
        pulled = x if sign > 0 else n - x

        def likely(strength):  # the most likely shares under a pull
            pull = math.exp(strength) * shares
            rest = n - pull
            apart = np.sqrt(rest * rest + 4 * pull * pulled)
            own = np.where(rest > 0, 2 * pulled, apart - rest) / np.where(rest > 0, rest + apart, 2 * pull)
            return np.clip(own, 0, 1) if sign > 0 else 1 - np.clip(own, 0, 1)

        def beyond(strength):
            p = likely(strength)
            excess = sign * (shares @ p - mean) - z * math.sqrt(weights @ (p * (1 - p)))
            return excess if abs(excess) > 1e-14 else -1.0

        weak, strong = math.log(1e-9), math.log(1e12 * n.sum())
        return shares @ likely(optimize.brentq(beyond, weak, strong, xtol=1e-15) if beyond(strong) > 0 else strong)

    if x.any() and (x < n).any():
        size = mean * (1 - mean) / max(variance / whole**2, 1e-300)
        few = mid_p_low(mean * size, size, level) if mean > 0 else 0.0
        few = few, 1 - mid_p_low((1 - mean) * size, size, level) if mean < 1 else 1.0
    else:
        rows = zip(shares, n.astype(int), N.astype(int), strict=True)
        bound = max(share * (1 - exact(num, num, size, level)[0]) for share, num, size in rows)
        few = (0.0, bound) if mean < 0.5 else (1 - bound, 1.0)
    low, high = wider((end(-1), end(1)), few)
    return known + whole * low, known + whole * high


def adjusted(share, size_at, half, events, labels, level, expects_none):
    """Wilson's interval at the size with the variance at a share, with half an event added."""
    low, centre = 0.0, min(max(share, 0.0) + half, 1.0)
    if events and share > 0:
        own = min(share, 1.0)
        low = wilson(own, size_at(own), level)[0]
        low = min(low, mid_p_low(own * size_at(own), size_at(own), level)) if own < 1 else low
    high = wilson(centre, size_at(centre), level)[1]
    return low, max(high, 1 - ((1 - level) / 2) ** (1 / int(labels))) if not events and expects_none else high


def wilson_ends(value, variance, labels, events, half, expected):
    """The ends at any level, of a share with a known variance."""

    def size_at(share):
        inside = min(max(share, min(half, 0.5)), 1 - min(half, 0.5))
        return max(inside * (1 - inside) / max(variance, 1e-300), 1e-3)

    return lambda level: adjusted(value, size_at, half, events, labels, level, expected < 1)


def from_failures(share, variance, effect, expected, error, failures, labels, level, binary=True, k=1, degrees=None):
    """Interval of the accuracy by the adjusted Wilson interval of the share of failures.

    effect, expected and error are of each label: how far it moves the share, its expected failure, and what it missed.
    """
    a, p, terms = effect, expected, (effect * error) ** 2
    if not binary:
        low, high = one_more(max(share, 0.0), variance, a @ a / max(a.sum(), 1e-300), level)
        return 1 - high, 1 - low
    m = terms.sum() ** 2 / max(terms @ terms, 1e-300)
    widen = student(degrees or max(len(a) - 1, 1), level)
    ones = lambda x: x if x @ a > 0 else np.ones_like(x)  # noqa: E731
    q, r = ones(p) / ones(p).sum(), ones(1 - p)
    half, square, success = 0.5 * (q @ a), 0.5 * (q @ a**2), 0.5 * (r @ a) / r.sum()

    def size_at(centre):
        def at(x):
            x = min(max(x, min(half, 0.5)), 1 - min(success, 0.5))
            return x * (1 - x)

        measured = m / (m + k) * (variance + square) / at(centre)
        model = (k / (m + k)) * (a**2 @ (p * (1 - p)) + square) / at(max(centre, a @ p))
        return 1 / max(measured + model, 1e-300) / widen**2

    low, high = adjusted(share, size_at, half, failures, len(a), level, k == 1 and p.sum() < 1)
    return 1 - (high if failures < labels else 1.0), 1 - low


# -- designs --------------------------------------------------------------------------------------------------
def equal(n):
    return 1 / (n * max(n - 1, 1))


def scatter(z, c, group=None):
    group, found = np.zeros(len(z), int) if group is None else group, 0.0
    for own in np.unique(group):
        here = group == own
        centre = c[here] @ z[here] / max(c[here].sum(), 1e-300)
        found += c[here] @ (z[here] - centre) ** 2
    return found


class Sample:
    """How the labels of a round stand for what they were drawn from: mean Σ w·x, variance Σ c·(z - mean z)² by group.

    z is scale·x, and in a design step by step what was drawn earlier is added.
    """

    group = earlier = predicted = None
    degrees, distinct, parts, leverage = None, True, (), 0.0

    def __init__(self, design):
        self.design = d = {k: np.array(v) if isinstance(v, list) and k != "designs" else v for k, v in design.items()}
        self.kind, self.N = d["type"], d.get("population")
        self.read(d)
        self.n = len(self.w)
        if self.kind not in ("simple random", "purposive", "stratified", "Rao-Hartley-Cochran", "replicates"):
            self.largest = (self.w * np.sqrt(self.out) if self.predicted is not None else self.w).max()
        self.bound = getattr(self, "bound", self.largest)

    def read(self, d):
        q = d.get("draw_probability")
        if self.kind in ("simple random", "purposive"):
            n, self.distinct = d["num"], not d.get("replacement", False)
            self.left = 1 - n / self.N if self.distinct else 1.0
            self.w, self.scale, self.c = np.full(n, 1 / n), 1.0, np.full(n, self.left * equal(n))
            self.largest = math.sqrt(self.left) / n
            self.bound = max(self.left / n, 1 / self.N) if self.left > 0 else 0.0
        elif self.kind == "stratified":
            self.read_strata(d["stratum"], d["sizes"])
        elif self.kind == "Hansen-Hurwitz":
            self.distinct, self.scale, n = False, 1 / (self.N * q), len(q)
            self.w, self.c = self.scale / n, np.full(n, equal(n))
            self.bound = 1 / (n * self.N * d["least_probability"])
        elif self.kind == "Rao-Hartley-Cochran":
            Q, size, n = d["group_probability"], d["group_size"], len(q)
            self.N, squares = size.sum(), size @ size
            self.w, self.scale = Q / (self.N * q), Q.sum() / (self.N * q)
            self.c = ((squares - self.N) / (self.N**2 - squares) if n > 1 else 0.0) * Q / Q.sum()
            self.largest = self.scale.max() / n * math.sqrt(1 - (n - 1) / max(self.N - 1, 1))
            self.bound = Q.sum() / (n * self.N * d["least_probability"])
        elif self.kind == "step by step":
            n = len(q)
            ratio = d["num_before"] / np.maximum(np.arange(n), 1)
            self.earlier, self.scale, self.c = ratio / self.N, 1 / (q * self.N), np.full(n, equal(n))
            self.w = (np.cumsum(ratio[::-1])[::-1] - ratio + 1 / q) / (n * self.N)
            self.bound = (1 / d["least_probability"] + n - 1) / self.N / n
        elif self.kind == "replicates":
            self.read_replicates(d)
        else:  # inclusion probabilities, in a pool that grew each part with its own
            self.group = d.get("part", np.zeros(len(d["inclusion_probability"]), int))
            num = np.bincount(self.group)[self.group]
            self.pi = pi = d["inclusion_probability"] * (
                num / np.atleast_1d(d.get("drawn", d["num_drawn"]))[self.group]
            )
            self.w, self.out = 1 / (self.N * pi), np.maximum(1 - pi, 0)
            self.scale, self.c = num * self.w, self.out * [equal(n) for n in num]
            self.predicted, self.leverage = d["predicted_failure"], d.get("leverage", 0.0)

    def read_strata(self, stratum, sizes):
        self.N, self.num = sizes.sum(), np.bincount(stratum, minlength=len(sizes))
        self.P, left = sizes / self.N, 1 - self.num / sizes
        self.w, self.scale, self.own = (self.P / self.num)[stratum], 1.0, self.P**2 * left / self.num
        joined, number, held = [], 0, 0  # a stratum with one label joins the next
        for num in self.num:
            number, held = (number + 1, 0) if held >= 2 else (number, held)
            joined, held = [*joined, number], held + num
        joined = np.array(joined)
        joined[joined == number] = number if held >= 2 else max(number - 1, 0)
        self.group = joined[stratum]
        total = np.bincount(joined, weights=self.own)
        self.c = (total / np.maximum(np.bincount(self.group) - 1, 1))[self.group]
        self.largest = (self.P / self.num * np.sqrt(left)).max()
        self.bound = np.maximum(self.P / self.num * left, (left > 0) / self.N).max()

    def counts(self, y):
        """Successes, labels and examples of each stratum."""
        x = np.bincount(self.design["stratum"], weights=y, minlength=len(self.num))
        return np.array([x, self.num, self.design["sizes"]], float)

    def read_replicates(self, d):
        columns = {k: v for k, v in d.items() if k not in ("type", "sizes", "designs", "replicate")}
        places = [np.flatnonzero(d["replicate"] == r) for r in range(len(d["sizes"]))]
        rows = zip(d["designs"], places, strict=True)
        inner = [(Sample(own | {k: v[at] for k, v in columns.items()}), at) for own, at in rows if len(at)]
        sizes = np.array([size for size, at in zip(d["sizes"], places, strict=True) if len(at)])
        self.parts, self.sizes, self.P, self.w = inner, sizes, sizes / sizes.sum(), np.zeros(len(d["replicate"]))
        for share, (own, at) in zip(self.P, inner, strict=True):
            self.w[at] = share * own.w
        self.degrees, self.distinct = len(inner) - 1, all(own.distinct for own, _ in inner)
        self.largest = max(share * own.largest for share, (own, _) in zip(self.P, inner, strict=True))

    def mean(self, x):
        return self.w @ x

    def variance(self, x):
        if self.parts:
            means = np.array([own.mean(x[at]) for own, at in self.parts])
            return scatter(means, np.full(len(means), equal(len(means))))
        z = self.scale * x + (0 if self.earlier is None else self.earlier * (np.cumsum(x) - x))
        return scatter(z, self.c, self.group)

    def failures(self, f):
        """Share of failures with its variance: where failures are predicted, labels correct the prediction."""
        if self.parts:
            own = np.array([part.failures(f[at])[0] for part, at in self.parts])
            return self.P @ own, scatter(own, np.full(len(own), equal(len(own))))
        if self.predicted is not None:
            e = f - self.predicted
            known = self.design["predicted_failures"] / self.N
            return known + self.w @ e, self.variance(e / np.sqrt(np.maximum(1 - self.leverage, 1e-6)))
        if self.kind == "stratified":  # one label has the largest variance for its smoothed mean
            stratum, num = self.design["stratum"], self.num
            total = np.bincount(stratum, weights=f, minlength=len(num))
            squares = np.bincount(stratum, weights=(f - (total / num)[stratum]) ** 2, minlength=len(num))
            smooth = (total + 0.5) / (num + 1)
            return self.w @ f, self.own @ np.where(num > 1, squares / np.maximum(num - 1, 1), smooth * (1 - smooth))
        if self.kind in ("simple random", "purposive") and self.n == 1:
            return f[0], self.left * f[0] * (1 - f[0])
        return self.w @ f, self.variance(f)

    def estimate(self, y, level):
        """Accuracy of what was drawn from, standard error and interval."""
        share, variance = self.failures(1 - y)
        binary, half = np.isin(y, (0, 1)).all(), 0.5 / (self.n + 1)
        if self.parts:
            used = half * (1 - half) / self.n if variance <= 1e-24 else variance
            inside = min(max(1 - share, half), 1 - half)
            size = inside * (1 - inside) / (used * student(self.degrees, level) ** 2)
            ends = wilson(min(max(1 - share, 0.0), 1.0), size, level)
        elif self.predicted is not None:
            own = self.w * np.sqrt(self.out), self.predicted, 1 - y - self.predicted
            ends = from_failures(share, variance, *own, (1 - y).sum(), self.n, level, binary)
        elif self.kind in ("simple random", "purposive", "stratified") and not binary:
            low, high = one_more(share, variance, self.bound, level)
            ends = 1 - high, 1 - low
        elif self.kind == "stratified":
            ends = of_strata(*self.counts(y), self.P, variance, level)
        elif self.kind in ("simple random", "purposive") and self.distinct:
            ends = exact(round(y.sum()), self.n, self.N, level)
        elif self.kind == "simple random":
            x, left, tail = round(y.sum()), self.n - round(y.sum()), (1 - level) / 2
            ends = special.betaincinv(x, left + 1, tail) if x else 0.0
            ends = ends, special.betaincinv(x + 1, left, 1 - tail) if left else 1.0
        else:
            both = (share, variance), (self.mean(y), self.variance(y))
            low, high = one_more_of_both(*both, self.bound, level, 0.5)
            ends = 1 - high, 1 - low
        return 1 - share, math.sqrt(variance), *ends


class Rounds:
    """All rounds as one linear estimator; before are the labels that were known when a round was drawn."""

    def __init__(self, rounds, size):
        self.samples, self.size, place, start = [Sample(own["design"]) for own in rounds], size, {}, 0
        self.index = np.concatenate([own["index"] for own in rounds])
        self.places, self.before = [], []
        for own, sample in zip(rounds, self.samples, strict=True):
            after = own["design"].get("labelled_before", list(place) if sample.kind != "simple random" else None)
            after = after if after is not None else list(place) if sample.distinct else []
            self.before.append(np.array([place[i] for i in after], int))
            self.places.append(slice(start, start + sample.n))
            place |= {i: start + k for k, i in enumerate(own["index"]) if i not in place}
            start += sample.n
        self.once, kinds = np.array(list(place.values())), {own.kind for own in self.samples}
        num = np.array([own.n for own in self.samples], float)
        self.left = np.array([1 - len(own) / size for own in self.before])
        distinct = np.array([own.distinct for own in self.samples])
        after = np.maximum(self.left - distinct * num / size, 0.5 / size)
        plan = num / (np.maximum(self.left, 0.5 / size) * after)
        plan *= 1 if kinds <= {"simple random", "stratified"} else np.cbrt(np.cumsum(num))
        self.plan = plan / plan.sum()
        self.degrees = min((d for own in self.samples if (d := own.degrees)), default=None)
        self.scale = self.plan * self.left
        self.one = None
        if kinds == {"simple random"} and distinct.all():
            self.one = Sample({"type": "simple random", "num": start, "population": size})
        self.w, self.largest = np.zeros(start), 0.0
        if len(self.once) == size:
            self.w[self.once] = 1 / size
        elif self.one:
            self.w, self.largest = self.one.w, self.one.largest
        else:
            self.w = np.concatenate([s * own.w for s, own in zip(self.scale, self.samples, strict=True)])
            for factor, known in zip(self.plan, self.before, strict=True):
                self.w[known] += factor / size
            self.largest = max(s * own.largest for s, own in zip(self.scale, self.samples, strict=True))

    def mean(self, x):
        return self.w @ x

    def variance(self, x):
        if len(self.once) == self.size:
            return 0.0
        rows = zip(self.scale, self.samples, self.places, strict=True)
        return self.one.variance(x) if self.one else sum(s**2 * own.variance(x[at]) for s, own, at in rows)
