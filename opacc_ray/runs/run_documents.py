"""The documents that a run stores as JSON, and answers of commands: the estimate, ``estimate.json``, with all that it
states; the header of a run, its log, and its rounds.
"""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from html import escape
from pathlib import PurePath
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import Field

from opacc_ray.documents import Document, Part, SealedDocument
from opacc_ray.errors import DataError, SpecError, shown
from opacc_ray.estimation.intervals import as_html, as_text, clipped
from opacc_ray.extract.feature_set import FeatureLink
from opacc_ray.extract.model_code import Code
from opacc_ray.lake.store_uris import Store
from opacc_ray.metrics.metric import ACCURACY, parse_metric
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH
from opacc_ray.spec import Spec


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

    format: Literal["opacc-estimate/2"] = "opacc-estimate/2"
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

    format: Literal["opacc-stated/1"] = "opacc-stated/1"
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


# -- the estimate ----------------------------------------------------------------------------------------------------


# -- the run -------------------------------------------------------------------------------------------------


class IgnoredFiles(Part):
    """Files of other formats under the pool's prefix, of one kind."""

    kind: str  # a suffix, or the type of an object that is no regular file, such as a FIFO
    num_files: int = Field(ge=1)  # number of files
    first: list[str]  # some of their names


class PoolListing(Part):
    """Listing of the pool when the run was created."""

    digest: str  # digest of the listing: names, sizes and versions of the files
    num_files: int | None = Field(default=None, ge=0)  # files in the pool
    num_shards: int = Field(ge=0)  # number of shards for extraction
    ignored: list[IgnoredFiles] = Field(default=[])  # other files there, which are not read, by kind
    version: str | None = None  # version of the table that all shards belong to; null if the pool is no table
    data_as_of: str | None = None  # when that version, or the newest file, was written: ISO 8601, UTC; null: unknown


class ReferenceListing(Part):
    """The reference data that features are compared with."""

    digest: str  # digest of its data, the model and the settings of extraction; name of its folder


class ModelDigest(Part):
    """The model under audit."""

    sha256: str | None  # digest of the weights; null if the factory loads its own


class RunHeader(SealedDocument):
    """Header of a run: its spec, and the origin of everything that decides its result."""

    remedy: ClassVar[str] = "restore it or start a new run"

    format: Literal["opacc-run/2"] = "opacc-run/2"
    spec: Spec  # the spec, with every default
    digest: str  # digest of everything that decides the result
    pool: PoolListing  # listing of the pool
    reference: ReferenceListing | None  # the reference data; null if no feature is compared with them
    features: FeatureLink | None = None  # the shared set of features; null if they are in the run's own prefix
    code: Code | None = None  # the code that made the features; null if the pool contains the features
    grown_from: str | None = None  # earlier run of the audit whose features of unchanged objects are taken; null: none
    model: ModelDigest  # the model's weights
    versions: dict[str, str]  # version of Python and of each package that matters
    git_commit: str | None  # git commit of the working directory at the start, if there is one
    created: str  # when the run was created: ISO 8601, UTC

    @property
    def code_digest(self) -> str | None:
        """Digest of the code that made the features; None if no code ran."""
        if self.code is None:
            return None
        return hashlib.sha256(json.dumps(self.code.model_dump(), sort_keys=True).encode()).hexdigest()


# -- the model before any label ------------------------------------------------------------------------------


class Spread(Part):
    """Range of some numbers."""

    low: float  # minimum
    median: float  # median
    high: float  # maximum


class Predicted(Part):
    """Predictions of the model for some examples, in numbers."""

    examples: int = Field(ge=0)  # number of examples
    # predicted class -> examples, most frequent first; null for a regression, or if unknown
    classes: dict[str, int] | None
    confidence: Spread | None  # range of the confidences; null if the features have none
    values: Spread | None  # range of the values of a regression; null for a classification

    def __str__(self) -> str:
        found = []
        if self.classes is not None:
            rest = len(self.classes) - 10  # that are named
            more = f" and {rest} more class{'es' * (rest > 1)}" if rest > 0 else ""
            found.append(", ".join(f"{name}: {num}" for name, num in [*self.classes.items()][:10]) + more)
        if spread := self.confidence:
            found.append(f"confidence {spread.low:.2f} to {spread.high:.2f}, median {spread.median:.2f}")
        if spread := self.values:
            found.append(f"{spread.low:.4g} to {spread.high:.4g}, median {spread.median:.4g}")
        return "; ".join(found)


class ModelSanity(SealedDocument):
    """Predictions and warnings before any label, by which users recognize a wrong model."""

    remedy: ClassVar[str] = "delete it and run the spec again"

    format: Literal["opacc-sanity/1"] = "opacc-sanity/1"
    trial: list[str]  # warnings from the trial of some examples before extraction
    predicted: Predicted | None  # predictions for the pool; null before extraction
    warnings: list[str]  # warnings about these predictions


# -- rounds ------------------------------------------------------------------------------------------------


class KeptFile(Part):
    """A stored file."""

    sha256: str  # SHA-256 of its content
    size: int = Field(ge=0)  # bytes


def described_files(files: Mapping[str, bytes]) -> tuple[str, dict[str, KeptFile]]:
    """Return the name of the folder of some files, a digest of all of them, and each file by its name."""
    described = {name: KeptFile(sha256=digest_of(data), size=len(data)) for name, data in sorted(files.items())}
    content = {name: file.sha256 for name, file in described.items()}
    return digest_of(json.dumps(content, sort_keys=True).encode())[:16], described


class Draw(SealedDocument):
    """The draw of a round. It is created after its files; the round exists from then on."""

    format: Literal["opacc-draw/1"] = "opacc-draw/1"
    run: str  # digest of the run that owns the draw
    features: str  # digest of the features that it was drawn from
    folder: str  # folder of the files below the round: a digest of all of them
    files: dict[str, KeptFile]  # by name: selection.json, predictions.parquet

    @classmethod
    def of(cls, files: Mapping[str, bytes], run: str, features: str) -> "Draw":
        """Return the draw that consists of some files; ``features`` is the digest of what it was drawn from."""
        folder, described = described_files(files)
        return cls(run=run, features=features, folder=folder, files=described)

    def words(self) -> str:
        return f"drawn, from the features {self.features[:12]}"


class ClosedRound(SealedDocument):
    """A round that was closed although labels are missing."""

    remedy: ClassVar[str] = "restore it, or delete it to open the round again"

    format: Literal["opacc-closed/2"] = "opacc-closed/2"
    selection: str  # SHA-256 of the selection of the round
    given_up: list[str]  # ids without a label; they count as not drawn

    def words(self) -> str:
        return f"closed, {len(self.given_up)} labels given up"


class Taught(Document):
    """Labelled examples that were exported as training data."""

    format: Literal["opacc-taught/1"] = "opacc-taught/1"
    ids: list[str]  # ids of the examples

    def words(self) -> str:
        return f"{len(self.ids)} labelled examples exported as training data"


class RoundLook(Part):
    """Interval after a round: one interim analysis."""

    round: int = Field(ge=1)  # number of the round
    labels: int = Field(ge=1)  # labels of all rounds so far
    half_width: float = Field(ge=0)  # half the width of the interval
    # half the width that decides whether the goal is reached; larger while there are few failures
    cautious_half_width: float = Field(ge=0)


class GoalProgress(Part):
    """Progress towards a goal of `opacc next --until`, with a forecast of the labels."""

    metric: str = "accuracy"  # the number that the goal is about, such as f1@defect
    by: str | None = None  # slices that the goal is about, or NAME=SLICE; null: the pool
    slice: str | None = None  # the one of these with the widest interval, which is stated
    half_width: float = Field(gt=0)  # the goal: half the width of the interval
    level: float = Field(gt=0, lt=1)  # confidence level of the interval at the goal
    look_level: float = Field(gt=0, lt=1)  # confidence level of the interim intervals, adjusted for repeated analyses
    reached: bool  # whether the goal is reached
    value: float  # the estimate so far
    low: float  # lower end of the interval to report
    high: float  # upper end of the interval to report
    reason: str | None  # assumptions of the interval; null if it holds by the sampling design alone
    looks: list[RoundLook]  # one interim analysis after each complete or closed round
    total_labels: int = Field(ge=1)  # labels for the goal in total, as forecast; the actual number once it is reached
    labels_to_go: int = Field(ge=0)  # forecast of the labels that are still needed
    sizes: list[int]  # labels of each further round, as forecast
    srs_labels: int = Field(ge=1)  # labels that a simple random sample would need in total, planned in advance
    advice: str | None  # one sentence if the goal is too expensive; otherwise null
    # earlier goals, in order: half-widths of the accuracy, or texts such as f1@defect ±0.02
    earlier_goals: list[float | str]

    @property
    def target(self) -> str:
        """The number that the goal is about, in words."""
        return self.metric if self.by is None else f"{self.metric} by {self.by}"


class Goal(GoalProgress, SealedDocument):
    """Answer of `opacc next --until` after a round: progress and decision."""

    remedy: ClassVar[str] = "restore it, or delete it"

    format: Literal["opacc-goal/1"] = "opacc-goal/1"

    def words(self) -> str:
        of = "" if self.target == "accuracy" else f"{self.target} "
        return f"goal {of}±{self.half_width:g} {'reached' if self.reached else 'not reached'}"


class Seal(SealedDocument):
    """What will be stated of a run, written before its first label."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-seal/1"] = "opacc-seal/1"
    metrics: list[str]  # numbers that will be stated; accuracy is always one
    level: float = Field(gt=0, lt=1)  # confidence level of the intervals
    by: list[str] = Field(default=[])  # slices that they will be stated by
    half_width: float | None = None  # goal of `opacc next --until` at which sampling will stop; null: none
    promised_by: str | None = None  # who promises it

    def words(self) -> str:
        return f"sealed: {', '.join(self.metrics)} at level {self.level:g}"

    def deviations(self, stated: AccuracyEstimate) -> Iterator[str]:
        """Yield how an estimate deviates from the seal, in sentences."""
        if stated.level != self.level:
            yield f"the level is {stated.level:g}, and {self.level:g} was sealed"
        if stated.goal is None and self.half_width is not None and len(stated.rounds) == 1:
            yield f"no round was drawn towards ±{self.half_width:g} yet, which `opacc next --until` does"
        elif stated.goal != self.half_width:
            goals = ["none" if goal is None else f"±{goal:g}" for goal in (stated.goal, self.half_width)]
            yield f"the goal is {goals[0]}, and {goals[1]} was sealed"
        slices = list(dict.fromkeys(table.by for table in stated.by_slice))
        for name, found, sealed in (("metric", [*stated.metrics], self.metrics[1:]), ("slices", slices, self.by)):
            yield from (f"{name} {item} was sealed and is not stated" for item in sealed if item not in found)
            yield from (f"{name} {item} is stated and was not sealed" for item in found if item not in sealed)


class DrawnRound(Document):
    """A round that was drawn, or the answer that no further round is needed."""

    format: Literal["opacc-round/1"] = "opacc-round/1"
    run: str  # URI of the run
    method: str | None = None  # sampling method; null if nothing was drawn
    round: int | None = Field(default=None, ge=1)  # number of the round; null if nothing was drawn
    n: int = Field(default=0, ge=0)  # number of draws; an example that is drawn twice counts twice
    labelled: int = Field(default=0, ge=0)  # examples that already had a label, which the manifests leave out
    carried_from: str | None = None  # run that labelled these before; null: an earlier round
    pool_size: int | None = Field(default=None, ge=0)  # examples in the pool; null if nothing was drawn
    manifests: list[str] = Field(default=[])  # URIs of the manifests for annotators
    notice: str | None = None  # evidence in the labels against the way examples are chosen; null if there is none
    # objects of its examples that changed after extraction; null if nothing was drawn
    objects: ChangedObjects | None = None
    predicted: Predicted | None = None  # predictions for the pool; null if unknown, or if nothing was drawn
    warnings: list[str] = Field(default=[])  # signs that this may be the wrong model
    goal: GoalProgress | None = None  # progress towards `--until`; null without it
    step: list[str] = Field(default=[])  # command to run next and its arguments, without the run

    @property
    def reached(self) -> bool:
        """Whether the interval is as narrow as `--until` requires, so that nothing was drawn."""
        return self.goal is not None and self.goal.reached


# -- what was known before the first label --------------------------------------------------------------------


class HistorySource(Part):
    """One source of knowledge from before the first label."""

    # labels of the reference, labels of an earlier audit, or a judge, a column of the pool
    kind: Literal["reference", "audit", "judge"]
    uri: str  # URI of the source
    examples: int = Field(ge=0)  # number of labelled examples, or of values of the column
    column: str | None  # name of the column; null for labels


class KeptHistory(SealedDocument):
    """Record of what a run knew before its first label."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-kept-history/1"] = "opacc-kept-history/1"
    run: str | None  # digest of the run
    folder: str = Field(pattern="^[0-9a-f]{16}$")  # folder of the files: a digest of all of them
    files: dict[str, KeptFile]  # by name: labelled-1.parquet, judges.parquet
    sources: list[HistorySource]  # sources; labelled-1.parquet belongs to the first


# -- the end of a command ------------------------------------------------------------------------------------

Ended = Literal["done", "waits for labels", "wrong spec", "failed", "interrupted"]
"""How a job ended."""


class RunExit(Document):
    """Exit status of `opacc run`, written to storage for other programs."""

    format: Literal["opacc-run-exit/1"] = "opacc-run-exit/1"
    ended: Ended  # done: nothing is missing; wrong spec: exit code 2; interrupted: run it again
    exit_code: int  # exit code of `opacc run`; also 0 if the run waits for labels
    run: str | None  # URI of the run; null if it was not created
    waits_for: str | None  # the next thing to do, in words; null if the run failed
    error: str | None  # error message; null if the run did not fail


# -- the log -------------------------------------------------------------------------------------------------------


AnyDocument = TypeVar("AnyDocument", bound=Document)

FOLDER = "log/"


class Commit(SealedDocument):
    """One entry of the log of a run, in ``log/NUMBER.json``."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-commit/1"] = "opacc-commit/1"
    run: str  # digest of the run
    number: int = Field(ge=1)  # number of the entry
    previous: str | None  # SHA-256 of the file of the entry before; null: the first entry
    at: str  # time in ISO 8601, UTC; later than that of the entry before, whatever clocks show
    round: int | None = Field(default=None, ge=1)  # round that it is about; null: none
    # SHA-256 of each file that it speaks of, by its key; at least the first 16 digits
    files: dict[str, str] = Field(default={})
    content: list[dict[str, Any]]  # what happened: documents with a `format`

    def documents(self, kind: type[AnyDocument]) -> Iterator[AnyDocument]:
        """Yield the documents of a kind."""
        wanted = _format_of(kind)
        for content in self.content:
            if content.get("format") == wanted:
                yield kind.from_dict(content, f"entry {self.number} of the log")


class Removal(Document):
    """The last entry of a run: its files are deleted."""

    format: Literal["opacc-removal/1"] = "opacc-removal/1"

    def words(self) -> str:
        return "removed"


@cache
def _format_of(kind: type[Document]) -> str:
    """Return the format of a kind of document, which a log of thousands of entries is searched for."""
    return str(kind.model_fields["format"].default)


class Happening(NamedTuple):
    """What a command does to a run, as an entry of the log will say."""

    content: Sequence[Document | Mapping[str, Any]]
    round: int | None = None
    files: Mapping[str, str] = {}
    at: str | None = None  # no earlier than now; None: the time of writing


class CommitLog:
    """The log of one run in storage; entries that were read are kept.

    Parameters
    ----------
    store : the prefix of the run
    run : digest of the run
    """

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._read: list[Commit] = []
        self._last: str | None = None  # digest of the last entry's file
        self._lock = threading.RLock()

    def read(self) -> tuple[Commit, ...]:
        """Return all entries; raises DataError if one is lost, damaged or of another run."""
        with self._lock:
            self._refresh()
            return tuple(self._read)

    def _refresh(self) -> None:
        if self._read and not self._store.exists(_key(len(self._read) + 1)):
            return  # entries are numbered without gaps
        keys = [entry.key for entry in self._store.list(FOLDER)]
        new = [_key(number) for number in range(len(self._read) + 1, len(keys) + 1)]
        lost = sorted({*map(_key, range(1, len(keys) + 1))} - set(keys))
        if lost:
            raise DataError(f"{self._store.uri_of(lost[0])} is lost; restore it from a backup")
        for key, data in zip(new, self._store.read_many(new), strict=True):
            self._take(data, self._checked(key, data))

    def append(self, decide: Callable[[tuple[Commit, ...]], Happening | None]) -> Commit | None:
        """Write what ``decide`` returns for the log as it is; None if it returns None.

        It is called again if another command wrote first. What it raises ends the attempt, and nothing is written.
        Raises DataError if the run is being removed.
        """
        with self._lock:
            if not self._read:
                self._refresh()
            while (happening := decide(tuple(self._read))) is not None:
                if any(True for commit in self._read[-1:] for _ in commit.documents(Removal)):
                    raise DataError(self._removed)
                data, number = self._next(happening), len(self._read) + 1
                if self._store.create(_key(number), data) == data:
                    self._refuse_orphan(number)
                    self._take(data, Commit.from_bytes(data, "the log"))
                    return self._read[-1]
                self._refresh()
            return None

    @property
    def _removed(self) -> str:
        return f"{self._store.uri} was removed by `opacc runs remove` meanwhile, so nothing was done"

    def _refuse_orphan(self, number: int) -> None:
        """Raise DataError, and delete an entry that was just created, if those before it are gone."""
        if number > 1 and not self._store.exists(_key(number - 1)):
            self._store.delete(_key(number))
            raise DataError(self._removed)

    def _next(self, happening: Happening) -> bytes:
        last = [datetime.fromisoformat(commit.at) + timedelta(microseconds=1) for commit in self._read[-1:]]
        time = datetime.now(UTC) if happening.at is None else datetime.fromisoformat(happening.at)
        return Commit(
            run=self._run,
            number=len(self._read) + 1,
            previous=self._last,
            at=max([time, *last]).isoformat(timespec="microseconds"),
            round=happening.round,
            files=dict(happening.files),
            content=[entry.to_dict() if isinstance(entry, Document) else dict(entry) for entry in happening.content],
        ).to_bytes()

    def _checked(self, key: str, data: bytes) -> Commit:
        commit, uri = Commit.from_bytes(data, self._store.uri_of(key)), self._store.uri_of(key)
        if commit.run != self._run:
            raise DataError(f"{uri} belongs to another run than spec.json; restore both from one backup")
        if (commit.number, commit.previous) != (len(self._read) + 1, self._last):
            raise DataError(f"{uri} does not follow the entry before it: one was changed; restore {FOLDER} as a whole")
        return commit

    def _take(self, data: bytes, commit: Commit) -> None:
        self._read.append(commit)
        self._last = digest_of(data)


def _key(number: int) -> str:
    return f"{FOLDER}{number:08d}.json"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of the content of a file."""
    return hashlib.sha256(data).hexdigest()


def name_of_labels(name: str, data: bytes) -> str:
    """Return the name for a stored file of labels: the digest of its content, and its suffix."""
    suffix = PurePath(name).suffix.lower()
    safe = suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""
    return f"{digest_of(data)[:16]}{safe}"
