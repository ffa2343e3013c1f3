"""Two models compared by the labels of one sample, by `opacc.compare`, with a name for each of its answers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import compare_outcomes
from opacc_ray.selection import Selection


@dataclass(frozen=True)
class Pair:
    """Accuracy of two models, and their difference."""

    first: Estimate
    second: Estimate
    difference: Estimate
    num_first_better: int
    num_second_better: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {name: getattr(self, name).to_dict() for name in ("first", "second", "difference")}


def compare(rounds: Selection | Sequence[Selection], first: Any, second: Any, level: float = 0.95) -> Pair:
    """The outcomes of each model are (n,), or a list of such, one for each round."""
    one = isinstance(rounds, Selection)
    found = compare_outcomes(rounds, [first, second] if one else list(zip(first, second, strict=True)), level)
    (pair,) = found.differences
    return Pair(*found.models, pair.difference, pair.num_first_better, pair.num_second_better)
