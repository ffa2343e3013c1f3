"""Stratified sample: a simple random sample of each stratum, whose sizes are known.

A stratum with one label has no variance of its own. For any variable it is collapsed with the next stratum (W. G.
Cochran, "Sampling Techniques", 1977, 5A.12). For failures, which are in [0, 1], it gets the largest variance possible
for its smoothed mean.

Legend: N pool, n labels, N_h and n_h those of stratum h, P_h = N_h/N, f_h = n_h/N_h, H strata.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import Array, Design, Numbers, Sizes, scatter
from opacc_ray.errors import DataError, LabelError


@dataclass(frozen=True, eq=False)
class Stratified(Design):
    """Simple random samples without replacement within strata. Every stratum needs a label to be represented."""

    name: ClassVar[str] = "stratified"
    interval = "stratified score"

    stratum: Numbers  # (n,)
    sizes: Sizes  # (H,) N_h

    @property
    def population(self) -> int:
        """N, examples to draw from."""
        return int(self.sizes.sum())

    @property
    def shares(self) -> Array:
        """P_h (H,), sums to 1."""
        return self.sizes / self.population

    @property
    def num(self) -> NDArray[np.int64]:
        """n_h (H,); raises LabelError if a stratum has no label."""
        num = np.bincount(self.stratum, minlength=len(self.sizes))
        if (num == 0).any():
            empty = int(np.flatnonzero(num == 0)[0])
            raise LabelError(
                f"stratum {empty} has no label, so its share of the pool cannot be estimated; label some of it"
            )
        return num

    @property
    def left(self) -> Array:
        """1 - f_h (H,)."""
        return 1 - self.num / self.sizes

    @property
    def weights(self) -> Array:
        return (self.shares / self.num)[self.stratum]

    def variance(self, x: Array) -> Any:
        num = self.num
        group_of_stratum = collapse(num)
        group = group_of_stratum[self.stratum]
        total = np.bincount(group_of_stratum, weights=self.shares**2 * self.left / num)
        return scatter(x, (total / np.maximum(np.bincount(group) - 1, 1))[group], group)

    def failure_variance(self, failure: Array) -> float:
        num = self.num.astype(np.float64)
        total = np.bincount(self.stratum, weights=failure, minlength=len(num))
        mean = total / num
        squares = np.bincount(self.stratum, weights=(failure - mean[self.stratum]) ** 2, minlength=len(num))
        smooth = (total + 0.5) / (num + 1)
        own = np.where(num > 1, squares / np.maximum(num - 1, 1), smooth * (1 - smooth))  # (H,)
        return float((self.shares**2 * self.left / num * own).sum())

    @property
    def largest_weight(self) -> float:
        return float((self.shares / self.num * np.sqrt(self.left)).max())

    @property
    def weight_bound(self) -> float:
        """An unlabelled failure moves the estimate by 1/N; if most of a stratum is labelled, no label moves it more."""
        return float(np.maximum(self.shares / self.num * self.left, (self.left > 0) / self.population).max())

    def check(self, source: str) -> None:
        last = int(self.stratum.max(initial=0))
        if last >= len(self.sizes):  # before anything of that size is made
            raise DataError(f"{source}: stratum {last} of its design is none of the {len(self.sizes)} in sizes")
        num = np.bincount(self.stratum, minlength=len(self.sizes))
        if (num > self.sizes).any():
            h = int(np.argmax(num > self.sizes))
            raise DataError(
                f"{source}: {num[h]} examples of stratum {h} were drawn, and sizes of its design has {self.sizes[h]}"
            )


def collapse(num: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group of each stratum (H,): every group has two labels, a stratum with one joins the next."""
    group, number, held = np.zeros(len(num), dtype=np.int64), 0, 0
    for h, own in enumerate(num):
        if held >= 2:
            number, held = number + 1, 0
        group[h] = number
        held += own
    if held < 2:  # the last group has one label
        group[group == number] = max(number - 1, 0)
    return group
