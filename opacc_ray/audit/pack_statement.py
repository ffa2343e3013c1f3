"""Recompute the document of an estimate of a pack, with what its intervals allow for, as its `verify.py` does."""

import math
from itertools import combinations

import numpy as np
from pack_designs import Rounds, exact, one_more, student, wilson
from pack_numbers import Parts, accuracy
from pack_tables import effects, mean_cost, metric, of_classes, of_judge, of_slices, ratio_effect
from scipy import optimize

FEWEST_TWICE = 10  # examples with two opinions, from which on intervals are widened


def document_of(own, asked):
    """Recompute the document of an estimate; what is missing here is not recomputed."""
    parts = {by: Parts(own, part) for by, part in own["parts"].items()}
    level, goal = asked["by_design"]["level"], asked["goal"]
    at = level if goal is None else 1 - 0.95 * (1 - level)  # an interim analysis uses .95 of what may go wrong
    plain, later = accuracy(own, level), Circumstances(own, at)
    whole, found = parts[""], later.of_population(accuracy(own, at), at)
    said = later.widened(found)
    document = said | {"pool_size": own["pool_size"], "by_design": plain, "metrics": {}, "by_slice": [], "judges": {}}
    document |= {"srs": baseline(own, asked["by_design"], level), "sequence": sequence(own, later, level)}
    labelled = {item["round"]: {"labelled": len(item["answers"])} for item in own["rounds"]}
    document["rounds"] = [labelled.get(item["round"], {}) for item in asked["rounds"]]
    for text in asked["metrics"]:
        document["metrics"][text] = later.of_metric(text, metric(own, parts, text, None, at), parts.get(text) or whole)
    for table in asked["by_slice"]:
        document["by_slice"].append({"slices": of_slices(own, parts, table, at)})
    for name in asked["judges"]:
        document["judges"][name] = of_judge(parts["judge*" + name], at)
    if later.opinions:
        document["label_noise"] = later.noise(found)
    if asked["assisted"]:
        document["assisted"] = assisted(own, at, later)
    if asked["by_true_class"]:
        document |= of_classes(whole, at)
    if asked["mean_cost"]:
        document["mean_cost"] = mean_cost(own, whole, asked["mean_cost"]["costs"], said, at)
    return document


def by_design_of(own, rounds):
    """What some rounds say without a fit to the labels of all."""
    return {key: value for key, value in own.items() if key != "trust"} | {"rounds": rounds}


# -- what else an interval allows for -------------------------------------------------------------------------
class Circumstances:
    """What changes the interval to report: a population, and second opinions."""

    def __init__(self, own, level):
        self.own, self.level, self.population, self.opinions = own, level, own.get("population"), own.get("opinions")
        self.design = Rounds(own["rounds"], own["pool_size"])
        self.size = self.of_pool(accuracy(own, level)) if self.population else None
        if self.opinions:
            differ = (lambda a, b, said, k: float(a == said) - float(b == said)) if own["exact"] else None
            self.given = self.differences(differ) if differ else self.opinions["differences"]
            self.delta = self.disagreement(self.given)

    def of_pool(self, found):
        """Size of the simple random sample of the population whose mean is as uncertain as that of the pool."""
        asked, N, value = self.population, self.own["pool_size"], found["value"]
        design, f = Rounds(self.own["rounds"], N), 1 - np.concatenate([item["outcome"] for item in self.own["rounds"]])
        spread = max(value * (1 - value), 0.0)
        if not np.isin(f, (0, 1)).all():
            spread = min(spread, design.w @ (f - 1 + value) ** 2 / design.w.sum())
        num, size, wide = N, max(N - 1.0, 1.0) * (value * (1 - value) / spread if spread > 0 else 1.0), 1.0
        if asked["clusters"]:
            own = asked["clusters"]
            num, cluster = len(own["size"]), np.array(own["of_label"])
            d = (np.array(own["forecast"]) - (1 - value) * np.array(own["size"])) / N
            d = d + np.bincount(cluster, weights=design.w * (f - own["of_label_forecast"]), minlength=num)
            square = (d - d.mean()) ** 2
            degrees, least = num - 1.0, value * (1 - value) / size if spread > 0 else 0.0
            size, total = float(num), num / (num - 1) * square.sum()
            if least > 0 and square.any():
                kurtosis = num * (square @ square) / square.sum() ** 2
                degrees = min(max(2 * num / max(kurtosis - 1, 1e-9), 1.0), degrees)
                size = max(value * (1 - value) / max(total - found["standard_error"] ** 2, least), 1.0)
            wide = student(degrees, self.level)
        left = 1 - num / asked["total"] if asked["total"] else 1.0
        return size / (left * wide**2) if left > 0 else math.inf

    def of_population(self, found, level):
        if not self.population:
            return found
        value, low, high = found["value"], found["low"], found["high"]
        ends = wilson(value, self.size, level) if self.size < math.inf else (value, value)
        below, above = math.hypot(value - low, value - ends[0]), math.hypot(high - value, ends[1] - value)
        error = math.hypot(found["standard_error"], math.sqrt(max(value * (1 - value), 0.0) / self.size))
        ends = {"low": max(value - below, min(low, 0.0)), "high": min(value + above, max(high, 1.0))}
        return found | ends | {"standard_error": error}

    def differences(self, differ):
        """Mean difference of pairs of opinions on each example that has two, by round."""
        found, k = [], 0
        for item, said in zip(self.own["rounds"], self.opinions["said"], strict=True):
            found.append([])
            for own, answer in zip(said, item["answers"], strict=True):
                pairs, k = [abs(differ(a, b, answer[1], k)) for a, b in combinations(own, 2)], k + 1
                found[-1] += [np.mean(pairs)] if pairs else []
        return found

    def disagreement(self, differences):
        """Mean difference of two opinions over the pool, and the upper end of its interval."""
        twice, d = self.opinions["twice"], np.concatenate(differences)
        if twice:
            rows = zip(twice, [own for own in differences if len(own)], strict=True)
            rounds = [item | {"outcome": list(own)} for item, own in rows]
            found = accuracy(by_design_of(self.own, rounds), self.level)
            return found["value"], found["high"]
        w = self.design.w[[len(own) > 1 for said in self.opinions["said"] for own in said]]
        w, num = w / w.sum(), len(w)
        mean = w @ d
        variance = num / max(num - 1, 1) * ((w * (d - mean)) ** 2).sum()
        return mean, one_more(mean, variance, w.max(), self.level)[1]

    def ends(self, found, delta):
        """The interval widened by a disagreement."""
        value, low, high, by = found["value"], found["low"], found["high"], max(delta[0], 0.0)
        spread = max(delta[1] - by, 0.0)
        below = value - by - math.hypot(max(value - low, 0.0), spread)
        above = value + by + math.hypot(max(high - value, 0.0), spread)
        return {"low": max(min(low, 0.0), min(below, low)), "high": min(max(high, 1.0), max(above, high))}

    def widened(self, found, given=None, most=1.0):
        if not self.opinions:
            return found
        mean, high = self.disagreement(given) if given else self.delta
        d, delta = np.concatenate(given or self.given), (most * mean, most * high)
        matters = (d != 0).any() and len(d) >= FEWEST_TWICE and delta[0] > (found["high"] - found["low"]) / 4
        return found | (self.ends(found, delta) if matters else {})

    def noise(self, found):
        d, (value, high) = np.concatenate(self.given), self.delta
        counts = {"examples": len(d), "differ": int((d != 0).sum()), "alpha": alpha(**self.opinions["units"])}
        share = {"disagreement": min(max(value, 0.0), 1.0), "disagreement_high": high}
        return self.ends(found, self.delta) | counts | share

    def of_metric(self, text, found, part):
        """A metric, widened by how far it differs between two opinions on one example."""
        if not self.opinions:
            return found
        name, _, positive = text.partition("@")
        if "/" in name:
            value = ratio_effect(text, self.own["counts"], self.design)
            differ = lambda a, b, said, k: value(a) - value(b)  # noqa: E731
            most = np.ptp([value(counts) for said in self.opinions["said"] for own in said for counts in own])
        elif "base" in part.part or name == "calibration_error":
            slope = np.abs(part.factor) if name in ("auc", "average_precision") else np.ones(len(part.f))
            differ, most = lambda a, b, said, k: slope[k] * ((a == said) * 1.0 - (b == said)), slope.max()
        else:
            place = {own: number for number, own in enumerate(part.classes)}
            effect = effects(part, name, place[positive] if positive else 1)
            differ = lambda a, b, said, k: (effect[place[a]] - effect[place[b]])[place[said]]  # noqa: E731
            most = np.ptp(effect, axis=0).max()
        most = max(most, 1e-300)
        return self.widened(found, [np.array(own) / most for own in self.differences(differ)], most)


def alpha(labels, numbers):
    """Krippendorff's alpha of the labels of examples that have two or more."""

    def unlike(own):
        if numbers:
            return 2 * len(own) ** 2 * np.var(np.array(own, float))
        return len(own) ** 2 - sum(own.count(each) ** 2 for each in set(own))

    total = [label for own in labels for label in own]
    expected = unlike(total)
    observed = sum(unlike(own) / (len(own) - 1) for own in labels)
    return 1 - (len(total) - 1) * observed / expected if expected else None


# -- in comparison with other ways ----------------------------------------------------------------------------
def baseline(own, found, level):
    """A simple random sample of as many labels with the same accuracy, and how many would be as precise."""
    N, y = own["pool_size"], np.concatenate([item["outcome"] for item in own["rounds"]])
    design = Rounds(own["rounds"], N)
    n, mean = len(design.once), min(max(found["value"], 0.0), 1.0)
    if np.isin(y, (0, 1)).all():
        spread, ends = mean * (1 - mean) * n / max(n - 1, 1), exact(round(mean * n), n, N, level)
    else:
        w = design.w / design.w.sum()
        spread = w @ (y - w @ y) ** 2 * n / max(n - 1, 1)
        bound = max((1 - n / N) / n, 1 / N) if n < N else 0.0
        low, high = one_more(1 - mean, spread * (1 / n - 1 / N), bound, level)
        ends = 1 - high, 1 - low
    terms, size = (y - y.mean()) ** 2, None
    known = own["design_based"] and found["standard_error"] and spread and np.ptp(y)
    if known and terms.sum() ** 2 / (terms @ terms) >= 3:
        size = 1 / (found["standard_error"] ** 2 / spread + 1 / N)
        size = None if size > n * (1 + 1e-9) and found["high"] - found["low"] >= ends[1] - ends[0] else size
    return {"n": n, "low": ends[0], "high": ends[1], "effective_size": size}


def sequence(own, later, level):
    """The interval that holds at any time: by bets on single draws, or by all rounds so far."""
    rounds, drawn = own["rounds"], draws(own)
    if drawn is None or any(item["missing"] and item["gaps"] for item in rounds):
        rounds = rounds[: next((k for k, item in enumerate(rounds) if item["missing"]), len(rounds))]
    if not rounds:
        return {"low": 0.0, "high": 1.0}
    own = by_design_of(own, rounds)
    drawn = draws(own)
    if drawn is None:
        spent = [(1 - level) * 6 / (math.pi * k) ** 2 for k in range(1, len(rounds) + 1)]
        after = [accuracy(own | {"rounds": rounds[: k + 1]}, 1 - spent[k]) for k in range(len(rounds))]
        low, high = max(item["low"] for item in after), min(item["high"] for item in after)
    else:
        value, before, bound = drawn
        size, alpha = own["pool_size"], (1 - level) / 2
        low = least_share(bound - value, size - bound - before, size, alpha)
        high = 1 - least_share(value, before, size, alpha)
    value, error = (accuracy(own, level)[key] for key in ("value", "standard_error"))
    found = accuracy(own, level, lambda _: (value, error, min(low, high), max(low, high)))
    found = later.widened(later.of_population(found, level))
    return {key: found[key] for key in ("low", "high")}


def draws(own):
    """Each draw in its order: failure by its probability, failures drawn before, the most that it can be."""
    found, known, N = [], {}, own["pool_size"]
    for item in own["rounds"]:
        f, d = 1 - np.array(item["outcome"], float), item["design"]
        n, before = len(f), sum(known.values())
        q, running = np.array(d.get("draw_probability", [])), before + np.cumsum(f) - f
        if d["type"] == "simple random":
            left = np.full(n, float(N)) if d.get("replacement") else N - len(known) - np.arange(n, dtype=float)
            found.append((left * f, 0 * f if d.get("replacement") else running, left))
        elif d["type"] == "Hansen-Hurwitz":
            found.append((f / q, np.full(n, before), np.full(n, 1 / d["least_probability"])))
        elif d["type"] == "step by step" and (np.array(d["num_before"]) == np.arange(n)).all():
            found.append((f / q, running, np.full(n, 1 / d["least_probability"])))
        else:
            return None
        known |= dict(zip(item["index"], f, strict=True))
    return [np.concatenate(column) for column in zip(*found, strict=True)]


def least_share(value, before, size, alpha):
    """Shares below are excluded: at fair odds, 24 gamblers would have reached 1/alpha together."""
    stakes = ((np.arange(24) + 0.5) / 24) ** 2

    def excess(share):
        expected = size * share - before
        if (expected < -1e-12 * size).any() or (value[expected <= 1e-12 * size] > 1e-12 * size).any():
            return math.inf
        odds = np.divide(value, expected, out=np.ones_like(expected), where=expected > 1e-12 * size)
        capital = np.log1p(stakes[:, None] * (odds - 1)).cumsum(axis=1)
        return (np.logaddexp.reduce(capital, axis=0) - math.log(24)).max(initial=0.0) + math.log(alpha)

    if excess(0.0) < 0:
        return 0.0
    return optimize.bisect(excess, 0.0, 1.0, xtol=1e-15) if excess(1.0) < 0 else 1.0


def assisted(own, level, later):
    """Accuracy with the help of a prediction of every outcome, as far as it helped on the labels."""
    f, pool = 1 - np.concatenate([item["outcome"] for item in own["rounds"]]), own["prediction"]
    design, q, N = Rounds(own["rounds"], own["pool_size"]), np.array(pool["failure"]), own["pool_size"]
    alarm = (design.w * q).max() * design.largest / design.w.max()
    alarm = min(max(alarm, pool["mean"] - design.mean(q)), design.largest * pool["largest"])
    independent = [(1.0, design, np.arange(len(f)))]
    if any(sample.parts for sample in design.samples):
        independent = []
        for factor, sample, at in zip(design.plan, design.samples, design.places, strict=True):
            inner = [(sample.sizes[k], *part) for k, part in enumerate(sample.parts)]
            for size, part, here in inner or [(N, sample, np.arange(len(sample.w)))]:
                independent.append((factor * size / N, part, at.start + here))
    covariance, rounding, variance = 0.0, 0.0, alarm**2
    for share, part, at in independent:
        up, down, alone = (part.variance(x[at]) for x in (f + q, f - q, q))
        covariance, variance = covariance + share**2 * (up - down) / 4, variance + share**2 * alone
        rounding += share**2 * 1e-12 * (up + down)
    strength = min(covariance / variance, 1.0) if variance > 0 and covariance > rounding else 0.0
    share, spread = strength * pool["mean"] + design.mean(f - strength * q), design.variance(f - strength * q)
    wide, w, y, b = spread * student(design.degrees, level) ** 2, design.largest, max(share, 0.0), strength * alarm
    low = high = share
    if w > 0:
        low = one_more(max(y - b, 0.0), wide + (w * y + b) ** 2 - (w * (y - b)) ** 2, w, level)[0]
        high = one_more(y, wide, w, level)[1]
    found = accuracy(own, level, lambda plain: (1 - share, math.sqrt(spread), 1 - high, 1 - low) if strength else plain)
    return later.widened(later.of_population(found, level)) | {"strength": strength}
