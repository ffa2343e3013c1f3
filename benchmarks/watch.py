"""Simulate lives of a watched model: false alarms, and delays of the alarm compared with a monitor of running means.

    python benchmarks/watch.py EMPLOYMENT.parquet [--lives 1000] [--seed 0]

The employment data have the predictions of a model and the truth, by year. The reference is 2015, and a life gets
labels of every week, drawn anew from that year. In lives without a drop nothing ever changes, for 260 weeks: there a
false alarm is most likely. In the others the accuracy is 5 points lower from some week on. Right examples fail at
random then, which the probabilities of the model do not show.

The peer is AsymptoticPPRM of GLIDE (G. Zhang et al., "Prediction-powered risk monitoring of deployed models for
detecting harmful distribution shifts", arXiv 2602.02229, 2026), written anew from its description: the mean predicted
failure of each week, corrected by the labels with a strength that earlier weeks decide (PPI++), and a one-sided
asymptotic confidence sequence of the running mean of the weeks (I. Waudby-Smith et al., Annals of Statistics 52, 2024),
tightest at the tenth. Delays compare at one limit, that both know: the share of failures of 2015 and the tolerance. The
peer has the same rate, as many labels a week as opacc on average, and 1,000 predictions a week.
"""

import argparse

import markdown_table
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from opacc_ray.estimators.watching import (
    Reference,
    adjusted,
    begin,
    bets_on_draws,
    counted_reference,
    known_reference,
    labels_to_draw,
)

Array = NDArray[np.float64]
Weeks = NDArray[np.int64]  # (lives,) week of the alarm, 0: none

ALPHA, LIFE, TOLERANCE, DROP = 0.05, 260, 0.01, 0.05
BEGINS = (14, 130)  # weeks from which on the accuracy is lower
REFERENCE, EXAMPLES = 1000, 1000  # labels of a reference that is not known; examples of a week


def watch(
    rng: np.random.Generator,
    shares: Array,
    reference: Reference,
    tolerance: float,
    labels: tuple[int, int],
    predicted: Array,
    failed: Array,
) -> tuple[Weeks, float]:
    """Return the alarms of lives with the failure ``shares`` (weeks,), and their mean labels a week until then.

    ``failed`` (N,) and its prediction (N,) are of the pool to draw from.
    """
    base, slope = failed.mean(), np.cov(failed, predicted)[0, 1] / predicted.var(ddof=1)
    state, alarm = begin(reference, tolerance), np.zeros(len(reference.upper), dtype=np.int64)
    spent = weeks = 0.0
    for week, share in enumerate(shares.tolist(), start=1):
        wanted = labels_to_draw(state, *labels)
        spent, weeks = spent + wanted[alarm == 0].sum(), weeks + (alarm == 0).sum()
        bets = np.zeros_like(state.capital)
        for num in set(labels):
            own = np.flatnonzero((wanted == num) & (alarm == 0))
            index = rng.integers(len(failed), size=(len(own), num))
            f, p = np.maximum(failed[index], rng.random(index.shape) < (share - base) / (1 - base)), predicted[index]
            rest = rng.normal(predicted.mean(), predicted.std() / np.sqrt(EXAMPLES - num), len(own))
            mean = (p.sum(axis=1) + (EXAMPLES - num) * rest) / EXAMPLES
            values = adjusted(f, p, mean, float(predicted.max()), float(slope), state.limits[own])
            bets[own] = bets_on_draws(values, state.limits[own])
        state = state.after(bets)
        alarm[(alarm == 0) & (state.evidence >= 1 / ALPHA)] = week
        if alarm.all():
            break
    return alarm, spent / weeks


def running_means(
    rng: np.random.Generator, shares: Array, limit: Array, labels: int, predicted: Array, failed: Array
) -> Weeks:
    """Return the alarms of the peer; ``failed`` (N,) and its prediction (N,) are of the pool to draw from."""
    alarms = np.zeros(len(limit), dtype=np.int64)
    base = failed.mean()
    for life in range(len(limit)):
        sums, means, variances = np.zeros(7), [], []
        for share in shares:
            index = rng.integers(len(failed), size=EXAMPLES)
            f = predicted[index]
            y = np.maximum(failed[index], rng.random(EXAMPLES) < (share - base) / (1 - base))[:labels]
            own, rest = f[:labels], f[labels:]
            strength = _strength(sums) if means else 1.0
            sums += [labels, y.sum(), own.sum(), (y * own).sum(), len(f), f.sum(), (f**2).sum()]
            means.append(strength * rest.mean() + (y - strength * own).mean())
            variances.append(strength**2 * rest.var(ddof=1) / len(rest) + (y - strength * own).var(ddof=1) / labels)
        over = np.flatnonzero(_lower_bounds(np.array(means), np.array(variances)) > limit[life])
        alarms[life] = over[0] + 1 if len(over) else 0
    return alarms


def _strength(sums: Array) -> float:
    """Return the strength of the predictions that the sums of earlier weeks are best served by."""
    n, y, f, product, total, every, square = sums
    spread = square / total - (every / total) ** 2
    return float((product / n - y * f / n**2) / max((1 + n / (total - n)) * spread, 1e-12))


def _lower_bounds(means: Array, variances: Array) -> Array:
    """Return the lower ends of the confidence sequence of the running mean, (weeks,)."""
    t, v, twice = np.arange(1, len(means) + 1), np.cumsum(variances), 2 * ALPHA
    log = -2 * np.log(twice)
    scale = (log + np.log(log + 1)) / v[min(10, len(v)) - 1]
    time = v * scale + 1
    return np.asarray(np.cumsum(means) / t - np.sqrt(2 * time / (t**2 * scale) * np.log(1 + np.sqrt(time) / twice)))


def _delay(alarm: Weeks, begins: int) -> str:
    """Return the mean weeks from the first one with a drop to the alarm; lives without one count until the last."""
    after = np.where(alarm == 0, LIFE, alarm)[(alarm == 0) | (alarm >= begins)] - begins + 1
    return f"{after.mean():.1f}"


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("employment")
    found.add_argument("--lives", type=int, default=1000)
    found.add_argument("--seed", type=int, default=0)
    return found


def main() -> None:
    options = parser().parse_args()
    data = {name: column.to_numpy() for name, column in zip(*_columns(options.employment), strict=True)}
    first = data["year"] == data["year"].min()
    wrong = (data["prediction"] != data["employed"]).astype(np.float64)
    sure = data["predicted_probability"].astype(np.float64)
    failed, predicted = wrong[first], np.minimum(sure, 1 - sure)[first]
    share, rng = float(failed.mean()), np.random.default_rng(options.seed)
    lives, few, peers = options.lives, max(options.lives // 10, 1), max(options.lives // 4, 1)
    print(f"Accuracy of 2015: {1 - share:.3f}. {lives} lives of opacc in each cell, {peers} of the peer, and {few}")
    print(f"with {REFERENCE} labels of 2015.\n")
    names = ["labels a week", "false alarms, 2015 known", f"{REFERENCE} labels of 2015"]
    for begins in BEGINS:
        names += [f"week {begins}: labels a week", "delay, opacc", "delay, PPRM", f"alarms, {REFERENCE} labels of 2015"]
    print(markdown_table.header(names))
    for least, most in ((50, 50), (100, 100), (25, 200), (50, 200)):
        known, still = known_reference(np.full(lives, share)), np.full(LIFE, share)
        guessed = counted_reference(rng.binomial(REFERENCE, share, few), REFERENCE)
        cells, both = [f"{least}" if least == most else f"{least} to {most}"], ((least, most), predicted, failed)
        cells += [f"{(watch(rng, still, each, 0.0, *both)[0] > 0).mean():.3f}" for each in (known, guessed)]
        for begins in BEGINS:
            shares = np.where(np.arange(1, LIFE + 1) < begins, share, share + DROP)
            noticed, spent = watch(rng, shares, known, TOLERANCE, *both)
            limit = np.full(peers, share + TOLERANCE)
            peer = running_means(rng, shares, limit, round(spent), predicted, failed)
            late = watch(rng, shares, guessed, TOLERANCE, *both)[0] > 0
            cells += [f"{spent:.0f}", _delay(noticed, begins), _delay(peer, begins), f"{late.mean():.2f}"]
        print(markdown_table.row(cells), flush=True)


def _columns(path: str) -> tuple[list[str], list[object]]:
    table = pq.read_table(path)
    return table.column_names, table.columns


if __name__ == "__main__":
    main()
