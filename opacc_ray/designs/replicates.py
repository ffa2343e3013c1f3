"""Independent replicates: a method draws from random parts of the pool, each as if it were the pool.

    x̂ = Σ_r (N_r / N) x̂_r        v = Σ_r (x̂_r - x̄)² / (R(R - 1))

This is the method of random groups: P. C. Mahalanobis, "Recent experiments in statistical sampling in the Indian
Statistical Institute", JRSS 109 (1946); K. M. Wolter, "Introduction to Variance Estimation" (2007), chapter 2. The
parts make up the pool, so x̂ is unbiased if the method is unbiased within a part. No example is in two parts, which
makes v too large by S²/N (S² the variance of x): a negligible amount for usual pools. v does not show a *bias* of the
method, which is the same in all parts.

Replicates without labels are ignored: the others represent them.

Legend: N pool, N_r part, R replicates, n labels.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.design import Design, Numbers, Replicate, Sizes, read_design, read_field, scatter
from opacc_ray.designs.draw_sequence import Array
from opacc_ray.errors import DataError, LabelError


@dataclass(frozen=True, eq=False)
class Replicates(Design):
    """R designs of one kind; their labels alternate."""

    name: ClassVar[str] = "replicates"
    interval = "replicates"

    replicate: Numbers  # (n,)
    sizes: Sizes  # (R,) N_r
    designs: tuple[Design, ...]  # R

    @property
    def parts(self) -> tuple[Replicate, ...]:
        """The replicates that have labels; raises LabelError if fewer than two have."""
        places = [np.flatnonzero(self.replicate == r) for r in range(len(self.sizes))]
        rows = zip(self.sizes.tolist(), self.designs, places, strict=True)
        parts = tuple(Replicate(size, design, place) for size, design, place in rows if len(place))
        if len(parts) < 2:
            raise LabelError(f"only {len(parts)} replicate has labels, and a variance needs two; label some more")
        return parts

    @property
    def weights(self) -> Array:
        weights = np.zeros(len(self))
        for share, part in zip(self._shares, self.parts, strict=True):
            weights[part.places] = share * part.design.weights
        return weights

    def variance(self, x: Array) -> Any:
        means = np.stack([part.design.mean(x[part.places]) for part in self.parts])
        return scatter(means)

    @property
    def degrees(self) -> int | None:
        return len(self.parts) - 1

    @property
    def largest_weight(self) -> float:
        return max(share * part.design.largest_weight for share, part in zip(self._shares, self.parts, strict=True))

    def failure_share(self, failure: Array) -> float:
        return float(self._shares @ self._failure_shares(failure))

    def failure_variance(self, failure: Array) -> float:
        return float(scatter(self._failure_shares(failure)))

    @property
    def is_sequential(self) -> bool:
        return all(design.is_sequential for design in self.designs)

    @property
    def is_distinct(self) -> bool:
        return all(design.is_distinct for design in self.designs)

    @property
    def draws_by_risk(self) -> bool:
        return any(design.draws_by_risk for design in self.designs)

    @property
    def num_replicates(self) -> int:
        return len(self.sizes)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all replicates together, and the replicate of each example."""
        columns = {}
        for name, values in self.designs[0].columns().items():
            columns[name] = np.empty(len(self.replicate), dtype=values.dtype)
            for r, design in enumerate(self.designs):
                columns[name][self.replicate == r] = design.columns()[name]
        return columns | {"replicate": self.replicate}

    def restrict(self, keep: NDArray[np.bool_]) -> Self:
        designs = tuple(design.restrict(keep[self.replicate == r]) for r, design in enumerate(self.designs))
        return replace(self, replicate=self.replicate[keep], designs=designs)

    def to_json(self) -> dict[str, Any]:
        """Return the :meth:`columns` once, and in each replicate the rest of its design."""
        columns = {name: values.tolist() for name, values in self.columns().items()}
        whole = [design.to_json() for design in self.designs]
        inner = [{name: item for name, item in own.items() if name not in columns} for own in whole]
        return {"type": self.name, "sizes": self.sizes.tolist(), "designs": inner} | columns

    @classmethod
    def from_json(cls, content: dict[str, Any], source: str) -> Self:
        number, sizes = (read_field(item, content, source) for item in fields(cls)[:2])
        inner = content.get("designs")
        if not isinstance(inner, list) or len(inner) != len(sizes) or (len(number) and number.max() >= len(sizes)):
            raise DataError(f"{source}: replicate, sizes and designs of its design do not name the same replicates")
        rest = content.keys() - {"type", "designs", "sizes", "replicate"}
        if any(len(content[name]) != len(number) for name in rest):
            raise DataError(f"{source}: the columns of its design differ in length")
        designs = []
        for r, own in enumerate(inner):
            places = np.flatnonzero(number == r).tolist()
            columns = {name: [content[name][k] for k in places] for name in rest}
            designs.append(read_design(own | columns, source))
        design = cls(number, sizes, tuple(designs))
        design.check(source)
        return design

    def check(self, source: str) -> None:
        for r, design in enumerate(self.designs):
            own = int((self.replicate == r).sum())
            if own != len(design):
                raise DataError(
                    f"{source}: replicate names {own} examples of part {r}, and its design has {len(design)}"
                )

    @property
    def _shares(self) -> Array:
        """N_r / N of the parts (R,)."""
        sizes = np.array([part.size for part in self.parts])
        return sizes / sizes.sum()

    def _failure_shares(self, failure: Array) -> Array:
        return np.array([part.design.failure_share(failure[part.places]) for part in self.parts])
