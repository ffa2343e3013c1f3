"""What the labels of a run say at any level of confidence, and what they say beside those of the run before.

Only whole rounds count, and rounds that were closed: a round that still waits for labels is not a sample of its design.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opacc_ray.audit.accuracy import (
    accuracy_to_state,
    circumstances_of,
    sample_of,
    whenever_stopped,
    whole_rounds,
    with_nonresponse,
)
from opacc_ray.audit.several_models import difference_by
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.confidence_sequence import confidence_sequence
from opacc_ray.estimators.model_comparison import INDEPENDENT, independent_difference
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.runs.run import Run


@dataclass(frozen=True)
class Evidence:
    """The whole rounds of a run, and their labels; at least one of them has labels."""

    run: Run
    rounds: Sequence[LabelledRound]

    @classmethod
    def of(cls, run: Run) -> "Evidence | None":
        """Read it; None if no round with labels is whole. Raises LabelError if labels are in conflict."""
        known = having_labels(whole_rounds(read_rounds(run)))
        return cls(run, known) if known else None

    @property
    def measure(self) -> str:
        return self.rounds[0].measure

    def accuracy(self, level: float) -> Estimate:
        """The accuracy as it is stated."""
        return accuracy_to_state(self.run, self.rounds, self.rounds, level).estimate

    def sequence(self, level: float) -> Estimate:
        """The accuracy with an interval that holds however often one looks at the labels of the run."""
        found = with_nonresponse(confidence_sequence(*sample_of(self.rounds), level), self.rounds)
        return whenever_stopped(circumstances_of(self.run, self.rounds, level), found)

    def change(self, before: "Evidence", level: float) -> Estimate:
        """How far the accuracy is above that before: paired on one pool, else of two independent samples."""
        if self._shares_examples(before):
            try:
                return with_nonresponse(difference_by(self.run, before.run, self.rounds, level), self.rounds)
            except (DataError, SpecError):  # other classes, or examples or features that are gone
                pass
        return independent_difference(self.accuracy(level), before.accuracy(level))

    def change_at_any_time(self, before: "Evidence", level: float) -> Estimate:
        """The same, however often one looks: each of the two sequences has half of what both may err."""
        own, other = (item.sequence((1 + level) / 2) for item in (self, before))
        found = independent_difference(own, other)
        low, high = max(own.low - other.high, -1.0), min(own.high - other.low, 1.0)
        return replace(found, low=low, high=high, level=level, interval=f"difference of two: {own.interval}")

    def _shares_examples(self, before: "Evidence") -> bool:
        own, other = self.run.header.pool, before.run.header.pool
        return bool(own.digest) and own.digest == other.digest and self._size == before._size

    @property
    def _size(self) -> int:
        return self.rounds[0].selection.pool_size


def is_paired(change: Estimate) -> bool:
    """Whether a change is that of two models on the same labelled examples."""
    return change.interval != INDEPENDENT
