"""Coverage of the accuracy of videos to come, where the pool is a sample of videos whose frames are alike.

    python benchmarks/clusters.py [--repetitions 200]

A pool has 20 or 100 videos of 50 frames on average. In each video the model fails with a rate of its own, of a beta
distribution: *even* (20, 100), *uneven* (1, 5), *few bad* (0.2, 1.8). The confidence says something of the failures.
Each repetition draws new videos, frames and labels. Printed is a Markdown table: the share of 95 % intervals that
contain the mean accuracy of videos to come, in percent, of those for the pool and of those with ``sample_of``, and the
mean width of the latter over that of a normal interval with the same error.
"""

import argparse
from itertools import chain, product

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc

Array = NDArray[np.float64]

VIDEOS, LABELS, FRAMES = (20, 100), (100, 300), 50
RATES = {"even": (20.0, 100.0), "uneven": (1.0, 5.0), "few bad": (0.2, 1.8)}
METHODS = {"srs": (1.0,), "neyman": (0.1, 0.3, 0.6, 1.0)}
OF_METHOD = ("pool", "more", "width")
COLUMNS = ("videos", "failures", "labels", *(f"{text}, {name}" for name in METHODS for text in OF_METHOD))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=200)
    given = parser.parse_args()
    print(markdown.header(COLUMNS, texts=2))
    for videos, name, labels in product(VIDEOS, RATES, LABELS):
        found = (measure(method, videos, name, labels, given.repetitions) for method in METHODS)
        print(markdown.row([str(videos), name, str(labels), *chain(*found)]), flush=True)
    print(f"\n{given.repetitions} repetitions.")


def measure(method: str, videos: int, rates: str, labels: int, repetitions: int) -> list[str]:
    """Return coverage of the interval for the pool, of that for more videos, and its width over the needed one."""
    a, b = RATES[rates]
    truth, found = b / (a + b), []
    for seed in range(repetitions):
        rng = np.random.default_rng([videos, labels, seed])
        video, right, confidence = world(rng, videos, a, b)
        found.append(audit(opacc.Pool(confidence=confidence), right, video, method, labels, rng))
    covered = [np.mean([own.low <= truth <= own.high for own in pair]) for pair in zip(*found, strict=True)]
    error = np.sqrt(np.mean([(more.value - truth) ** 2 for _, more in found]))
    width = float(np.mean([more.high - more.low for _, more in found])) / (2 * 1.96 * error)
    return [*(f"{100 * share:.0f}" for share in covered), f"{width:.2f}"]


def world(rng: np.random.Generator, videos: int, a: float, b: float) -> tuple[NDArray[np.int64], Array, Array]:
    """Return the video of each frame, its outcome, and the confidence."""
    video = np.repeat(np.arange(videos), 1 + rng.poisson(FRAMES - 1, videos))
    right = (rng.random(len(video)) >= rng.beta(a, b, videos)[video]).astype(np.float64)
    logit = 1.5 * (2 * right - 1) + rng.normal(0, 1.2, len(video)) + 1
    return video, right, 1 / (1 + np.exp(-logit))


def audit(
    pool: opacc.Pool, right: Array, video: NDArray[np.int64], method: str, labels: int, rng: np.random.Generator
) -> tuple[opacc.Estimate, opacc.Estimate]:
    """Return the estimates for the pool and for more videos."""
    rounds = list[opacc.Labelled]()
    for size in np.diff(np.rint(np.array([0.0, *METHODS[method]]) * labels).astype(int)).tolist():
        chosen = opacc.select(pool, method, size, int(rng.integers(2**31)), previous=rounds)
        rounds.append(opacc.Labelled(chosen, outcomes=right[chosen.index]))
    own = opacc.estimate(rounds, pool=pool)
    return own, opacc.estimate(rounds, pool=pool, sample_of="more", clusters=video)


if __name__ == "__main__":
    main()
