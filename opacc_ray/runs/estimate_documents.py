"""The estimate of a run with all that it states: ``estimate.json``, the answer of `opacc estimate`."""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field

from opacc_ray.documents import Document, Part, SealedDocument, format_field
from opacc_ray.errors import SpecError, shown
from opacc_ray.estimation.intervals import as_html, as_text, clipped
from opacc_ray.metrics.metric import ACCURACY, parse_metric
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH


class RoundCounts(Part):
    """A round in numbers."""

    round: int = Field(ge=1)  # number of the round
    method: str  # sampling method
    budget: int = Field(ge=0)  # number of draws
    labelled: int = Field(ge=0)  # draws with a label
    missing: int = Field(ge=0)  # examples that still need a label
    unsure: int = Field(ge=0)  # examples whose every answer is "can't tell"
    given_up: int = Field(ge=0)  # examples without a label when their round was closed


class ChangedObjects(Part):
    """Objects of the pool with chosen examples: their state now compared with the listing of the run."""

    changed: int = Field(ge=0)  # objects with different content, by their tags
    lost: int = Field(ge=0)  # objects that no longer exist
    unknown: int = Field(ge=0)  # objects that could not be compared
    first: list[str]  # keys of the first objects that changed or no longer exist
    reason: str | None = None  # why no object was compared; null if they were
    version: str | None = None  # current version of the table, if it is newer than the run's and the spec pins none


class Interval(Part):
    """A confidence interval."""

    low: float  # its lower end
    high: float  # its upper end
    level: float = Field(gt=0, lt=1)  # confidence level
    method: str  # method that the interval is computed by, such as adjusted Wilson

    @property
    def interval(self) -> tuple[float, float]:
        """Return (low, high)."""
        return self.low, self.high


class Value(Part):
    """An estimated number."""

    value: float  # the estimate; an unbiased estimate may be outside its interval
    standard_error: float = Field(ge=0)  # estimated standard error


class StatedEstimate(Interval, Value):
    """A value with its interval."""

    n: int = Field(ge=0)  # labels that it is computed from; an example that was drawn twice counts twice
    design_based: bool  # whether the interval holds by the sampling design alone
    reason: str | None  # assumptions of the interval; null if it holds by the sampling design alone

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


class IfPredicted(Part):
    """A second interval of a number, which trusts the confidence about the examples without a label."""

    value: float  # the estimate
    low: float  # its lower end
    high: float  # its upper end
    # it holds unless more than so many times as many hide among the examples without a label
    factor: float = Field(ge=0)
    labels: int = Field(ge=0)  # labels drawn there at random that would settle it


class StatedMetric(StatedEstimate):
    """A metric of the model on the pool, with its interval."""

    # the interval if the confidence is right where no label is; null where it says little
    if_predicted: IfPredicted | None = None


class SliceEstimate(StatedMetric):
    """A metric of one slice of the pool."""

    size: int = Field(ge=0)  # examples of the pool in the slice
    low_together: float  # lower end of the interval that holds for all slices at once
    high_together: float  # its upper end
    tells: bool  # whether there are enough labels for the interval to say something


class SliceTable(Part):
    """A metric of every slice."""

    metric: str  # the metric, such as accuracy or f1@defect
    by: str  # the slices: a name of the spec, or prediction or truth for the classes
    # confidence level at which the joint intervals of all slices hold at once
    level_together: float = Field(gt=0, lt=1)
    slices: dict[str, SliceEstimate]  # slice -> the metric in it


class AssistedEstimate(StatedEstimate):
    """A prediction-powered estimate of the accuracy, by the confidences of the whole pool."""

    strength: float = Field(ge=0, le=1)  # weight of the confidences: 0 ignores them, 1 uses them fully


class MeanCost(StatedEstimate):
    """The mean cost per example.

    If every error costs the same, it follows from the estimated accuracy. Otherwise it is the total of another variable
    over the pool, with a forecast of its own, and may differ slightly from what the accuracy implies.
    """

    # true class -> cost of missing it, or -> predicted class -> cost of that confusion
    costs: dict[str, float | dict[str, float]]


class PairOfAnnotators(Part):
    """Two annotators on the examples that both answered."""

    first: str  # first annotator
    second: str  # second annotator
    examples: int = Field(ge=1)  # examples that both answered
    agree: int = Field(ge=0)  # examples with the same label from both
    kappa: float | None  # Cohen's kappa; null if undefined, and for numbers


class LabelNoise(Interval):
    """The interval of the accuracy, widened for errors of annotators."""

    examples: int = Field(ge=1)  # labelled examples with opinions of two or more named annotators
    differ: int = Field(ge=0)  # those of them on which two opinions give different outcomes
    disagreement: float = Field(ge=0)  # estimated mean difference of the outcomes of two opinions, over the pool
    disagreement_high: float = Field(ge=0)  # upper end of its interval
    alpha: float | None = None  # Krippendorff's alpha of the labels; null if it is not defined
    pairs: list[PairOfAnnotators] = Field(default=[])  # pairs of annotators with examples in common, by name
    reason: str | None  # assumptions of the interval; null if it holds by the sampling design alone


class SimpleRandomBaseline(Interval):
    """Interval of a simple random sample with as many labels and the estimated accuracy."""

    n: int = Field(ge=0)  # number of distinct labelled examples
    effective_size: float | None  # labels of an equally precise simple random sample; null if unknown


class AnytimeInterval(Interval):
    """The confidence sequence so far: valid at any time, after any number of interim analyses."""

    reason: str | None  # labels that it does not include yet; null if it includes all


class StatedJudge(Part):
    """What a judge is worth, by the labels."""

    judged: int = Field(ge=0)  # examples of the pool that it has judged
    labels: int = Field(ge=0)  # labels of these
    says_right: float = Field(ge=0, le=1)  # share of the judged answers that it calls right
    sensitivity: StatedEstimate  # share of the right answers that it calls right
    specificity: StatedEstimate  # share of the wrong answers that it calls wrong
    kappa: StatedEstimate  # Cohen's kappa: its agreement with the labels, beyond chance


class ConfusionShares(Part):
    """Confusion matrix of the pool: rows are true classes, columns are predicted classes."""

    classes: list[str]  # C classes that occur among labels or their predictions, in order
    share: list[list[float]]  # (C, C) share of the pool; all sum to 1, less what is predicted of other classes
    standard_error: list[list[float]]  # (C, C) estimated standard errors of the shares
    num: list[list[int]]  # (C, C) number of labels
    reason: str | None  # assumptions of the shares; null if they hold by the sampling design alone


class Basis(Part):
    """What a result is based on: run, pool, rounds, and what is missing."""

    run: str  # URI of the run
    measure: str = "accuracy"  # what is estimated: accuracy, or the score of a regression
    # labels of a regression that score 0 because they are too far from the prediction
    clipped: int = Field(default=0, ge=0)
    pool_size: int = Field(ge=0)  # examples in the pool that the estimate is for
    excluded: int = Field(ge=0)  # further examples that could not be read; the pool does not include them
    missing: int = Field(ge=0)  # examples that still need a label
    unsure: int = Field(ge=0)  # examples whose every answer is "can't tell"
    given_up: int = Field(ge=0)  # examples without a label when their round was closed
    rounds: list[RoundCounts]  # every round in numbers
    # objects of chosen examples that changed after extraction; null if not compared
    objects: ChangedObjects | None = None


class AccuracyEstimate(Basis, StatedEstimate, SealedDocument):
    """Accuracy of the model on the pool, estimated from the labels of all rounds.

    ``low`` and ``high`` are the interval to report. ``allows_for`` names what it includes in addition to the design.
    """

    remedy: ClassVar[str] = "delete it and run `opacc estimate` again"

    format: Literal["opacc-estimate/2"] = format_field("opacc-estimate/2")
    labels_digest: str  # digest of the labels; the estimate is out of date once it differs
    label_files: list[str] = Field(default=[])  # files of labels, and of the log of labels, that it was computed from
    # what the interval includes in addition to the sampling design
    allows_for: list[Literal["sampling of the pool", "stopping", "label noise"]] = Field(default=[])
    # half-width at which `opacc next --until` stopped; null if it did not stop
    goal: float | None = Field(default=None, gt=0)
    goal_of: str = "accuracy"  # number whose interval the goal was about, in words
    lead: str = "accuracy"  # the number that was asked for, with which answers begin
    by_design: StatedEstimate | None = None  # the accuracy with the interval of the sampling design alone
    notes: list[str] = Field(default=[])  # remarks that belong to the number, in sentences
    srs: SimpleRandomBaseline  # for comparison: interval of a simple random sample of the same size
    sequence: AnytimeInterval  # confidence sequence: an interval that is valid however often it is computed
    assisted: AssistedEstimate | None  # prediction-powered estimate by the confidences; null unless requested
    mean_cost: MeanCost | None  # the mean cost per example; null unless costs were given
    label_noise: LabelNoise | None = None  # the interval widened for errors of annotators; null without second opinions
    # predicted class -> examples of the pool; null for regressions, and if unknown
    pool_by_predicted_class: dict[str, int] | None
    # accuracy among the examples predicted as a class; null for regressions
    by_predicted_class: dict[str, StatedEstimate] | None
    # accuracy among the examples whose true class it is; null for regressions
    by_true_class: dict[str, StatedEstimate] | None
    confusion: ConfusionShares | None  # the confusion matrix; null for regressions
    # further metrics by name, such as f1@defect, in the order of the spec
    metrics: dict[str, StatedMetric] = Field(default={})
    by_slice: list[SliceTable] = Field(default=[])  # metrics of the slices of the pool, a table for each
    judges: dict[str, StatedJudge] = Field(default={})  # judge -> what it is worth, by the labels
    warnings: list[str] = Field(default=[])  # signs that this may be the wrong model

    def _repr_html_(self) -> str:
        return as_html(self) + "".join(f"<div>{escape(name)}</div>{as_html(own)}" for name, own in self._numbers())

    def __str__(self) -> str:
        return "\n".join([as_text(self), *(f"{name}: {as_text(own)}" for name, own in self._numbers())])

    def _numbers(self) -> list[tuple[str, StatedMetric]]:
        """Return metrics and slices with their names, of each table the worst slice first."""
        numbers = list(self.metrics.items())
        for table in self.by_slice:
            worst = sorted(table.slices.items(), key=lambda item: (not item[1].tells, item[1].value, item[0]))
            numbers += [(f"{table.metric}, {table.by} {name}", own) for name, own in worst]
        return numbers


class Stated(Document):
    """An estimate was stated; the file that the entry of the log names has it."""

    format: Literal["opacc-stated/1"] = format_field("opacc-stated/1")
    value: float | None  # the estimate; null if it could not be read

    def words(self) -> str:
        return "estimate stated" if self.value is None else f"estimate {100 * self.value:.1f} % stated"


RECALL = "recall"

_STATED = {"low", "high", "low_together", "high_together", "tells", "standard_error", "method", "reason", "level"}
_STATED |= {"n", "design_based"}
"""Fields of a row that are those of the estimate."""


class NumberRow(Part):
    """A number of the pool, of a slice or of a class."""

    metric: str = Field(description="what is estimated: accuracy, or a metric such as f1@defect")
    by: str | None = Field(description="the slices, or prediction or truth for classes; null: the whole pool")
    slice: str | None = Field(description="the slice or class; null: the whole pool")
    value: float = Field(description="the estimate, inside its interval")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")
    low_together: float | None = Field(
        description="lower end of the interval that holds for all slices at once; null: no slice"
    )
    high_together: float | None = Field(description="its upper end")
    level: float = Field(gt=0, lt=1, description="confidence level of the interval")
    n: int = Field(ge=0, description="draws that it is computed from")
    size: int | None = Field(ge=0, description="examples of the pool, the slice or the predicted class; null: unknown")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    unclipped: float | None = Field(
        default=None, description="the estimate as computed, which may be outside its interval"
    )
    standard_error: float | None = Field(default=None, description="its estimated standard error")
    method: str | None = Field(default=None, description="method that the interval is computed by")
    reason: str | None = Field(
        default=None, description="assumptions of the interval; null if it holds by the sampling design alone"
    )
    tells: bool | None = Field(
        default=None,
        description="whether the slice has enough labels for its interval to say something; null: no slice",
    )


class NumberName(NamedTuple):
    """Which number: a metric of the pool, or of one slice."""

    metric: str = ACCURACY
    by: str | None = None
    slice: str | None = None

    @classmethod
    def parse(cls, metric: str | None, part: str | None) -> Self:
        """Read a metric, and a slice as ``camera=north``; raise SpecError for something else."""
        by, equal, name = (part or "").partition("=")
        if part is not None and not (by and equal and name):
            raise SpecError(f"slice {shown(part)} is not written SLICES=SLICE, as in camera=north")
        return cls(str(parse_metric(metric or ACCURACY)), by or None, name or None)

    def __str__(self) -> str:
        return self.metric if self.by is None else f"{self.metric} in {self.by}={self.slice}"

    def find(self, rows: Iterable[NumberRow]) -> NumberRow | None:
        """Return the row of this number; None if there is none."""
        return next((row for row in rows if (row.metric, row.by, row.slice) == self), None)


RESULT = NumberName()
"""The accuracy of the pool, or the score of a regression."""


def number_rows(estimate: AccuracyEstimate) -> Iterator[NumberRow]:
    """Yield a row for each number of an estimate: the accuracy, metrics, slices, then classes."""
    size, sizes = estimate.pool_size, estimate.pool_by_predicted_class or {}
    yield _row(estimate, ACCURACY, size)
    for metric, own in estimate.metrics.items():
        yield _row(own, metric, size)
    for table in estimate.by_slice:
        for name, part in table.slices.items():
            yield slice_row(part, table, name)
    for name, accuracy in (estimate.by_predicted_class or {}).items():
        yield _row(accuracy, ACCURACY, sizes.get(name), BY_PREDICTION, name)
    for name, recall in (estimate.by_true_class or {}).items():
        yield _row(recall, f"{RECALL}@{name}", None, BY_TRUTH, name)


def slice_row(part: SliceEstimate, table: SliceTable, name: str) -> NumberRow:
    """Return the row of a slice of a table."""
    return _row(part, table.metric, part.size, table.by, name)


def _row(
    own: StatedEstimate, metric: str, size: int | None, by: str | None = None, name: str | None = None
) -> NumberRow:
    joint: dict[str, Any] = dict.fromkeys(("low_together", "high_together"))
    stated = joint | own.model_dump(include=_STATED)
    return NumberRow(metric=metric, by=by, slice=name, value=clipped(own), unclipped=own.value, size=size, **stated)
