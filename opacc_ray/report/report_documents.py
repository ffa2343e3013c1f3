"""The documents of a report.

| document | where |
|---|---|
| :class:`RunReport` | ``report.json`` |
| :class:`WrittenReport` | answer of `opacc report` |
| :class:`WrittenCharacterization` | answer of `opacc characterize` |
"""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.audit.characterization_documents import Characterization
from opacc_ray.audit.label_budget import WidthCourse
from opacc_ray.audit.prior_labels import HistorySource
from opacc_ray.documents import Document, Part
from opacc_ray.runs.estimate_documents import AccuracyEstimate, RoundCounts
from opacc_ray.runs.run_documents import RunHeader


class CoursePoint(Part):
    """The estimate after a round."""

    round: int = Field(ge=1, description="number of the round")
    labels: int = Field(ge=1, description="labels of all rounds so far")
    value: float = Field(description="the estimate")
    low: float = Field(description="lower end of its interval")
    high: float = Field(description="upper end of its interval")
    anytime_low: float | None = Field(description="lower end of the interval that holds at any time; null: not yet")
    anytime_high: float | None = Field(description="upper end of the interval that holds at any time; null: not yet")


class ConfidenceBin(Part):
    """The examples of the pool with a confidence in [low, high), the last bin with its upper end."""

    low: float = Field(ge=0, le=1, description="least confidence of the bin")
    high: float = Field(ge=0, le=1, description="upper end of the bin")
    pool: int = Field(ge=0, description="examples of the pool in it")
    confidence: float = Field(ge=0, le=1, description="their mean confidence")
    labels: int = Field(ge=0, description="labels in it")
    accuracy: float | None = Field(description="estimated accuracy in it; null: no label")
    accuracy_low: float | None = Field(description="lower end of its interval")
    accuracy_high: float | None = Field(description="upper end of its interval")


class ClassFailures(Part):
    """A predicted class: the failures that the model's confidence lets one expect, and those that labels show."""

    name: str = Field(description="the predicted class")
    pool: int = Field(ge=0, description="examples of the pool that the model takes for it")
    expected: float = Field(ge=0, le=1, description="mean of 1 - confidence over them")
    labels: int = Field(ge=0, description="labels among them")
    found: float | None = Field(description="estimated share of failures among them; null: no label")
    found_low: float | None = Field(description="lower end of its interval")
    found_high: float | None = Field(description="upper end of its interval")


class Reliability(Part):
    """The confidence of the model compared with its labels."""

    mean_confidence: float = Field(ge=0, le=1, description="mean confidence over the pool")
    without_labels: dict[str, float] = Field(
        default={}, description="accuracy as the confidence alone has it, by the name of the guess; no estimate"
    )
    bins: list[ConfidenceBin] = Field(description="bins of confidence, with about as many labels each")
    classes: list[ClassFailures] = Field(description="predicted classes, most expected failures first")


class ConfusionCell(Part):
    """How often the pool has one class and the model says one."""

    true: str = Field(description="what it is")
    predicted: str = Field(description="what the model says")
    share: float = Field(description="estimated share of the pool")
    standard_error: float = Field(ge=0, description="its estimated standard error")
    labels: int = Field(ge=1, description="labels of that kind")


class LabelledValue(Part):
    """A labelled example of a regression."""

    id: str = Field(description="id of the example")
    label: float = Field(description="what it is")
    prediction: float = Field(description="what the model says")
    outcome: float = Field(ge=0, le=1, description="what that scores")


class Misprediction(Part):
    """A labelled example that the model got wrong."""

    id: str = Field(description="id of the example")
    round: int = Field(ge=1, description="the round that chose it")
    prediction: str = Field(description="what the model says")
    label: str = Field(description="what it is")
    confidence: float | None = Field(description="confidence of the prediction; null: not known")
    outcome: float = Field(ge=0, le=1, description="what the prediction scores")
    not_shown: str | None = Field(description="why the page has no picture of it; null: it has")


class Gallery(Part):
    """Mispredicted labelled examples."""

    total: int = Field(ge=0, description="mispredicted examples among the labelled ones")
    order: str = Field(description="which come first")
    examples: list[Misprediction] = Field(description="the first of them")


class ExcludedExample(Part):
    """An example that could not be used."""

    id: str = Field(description="id of the example")
    reason: str = Field(description="why")


class DrawnBy(Part):
    """How a round was drawn."""

    round: int = Field(ge=1, description="number of the round")
    method: str = Field(description="the sampling method")
    title: str = Field(description="what that is")
    seed: int = Field(description="seed of the draw")
    parameters: dict[str, str] = Field(description="its parameters, as JSON")
    replicates: int = Field(ge=0, description="parts of the pool that it was drawn from apart; 0: the whole pool")


class RunReport(Document):
    """The content of the page of a report."""

    remedy: ClassVar[str] = "make it again with `opacc report`"

    format: Literal["opacc-report/1"] = Field(default="opacc-report/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    track: str | None = Field(description="the track whose rounds it rests on; null: the first one")
    name: str = Field(description="name of the audit")
    measure: str = Field(description="what is stated: the accuracy, or the score of a regression")
    state: Literal["complete", "partial", "without labels"] = Field(
        description="whether all labels are in, some, or none; examples that nobody could tell are in"
    )
    answer: str = Field(description="the result in one sentence")
    worth: str | None = Field(description="what the labels are worth beside a simple random sample, in a sentence")
    waits_for: str | None = Field(description="what the run waits for; null: nothing")
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the model that is meant")
    pool_size: int = Field(ge=0, description="examples in the pool")
    rounds: list[RoundCounts] = Field(description="every round in numbers")
    drawn: list[DrawnBy] = Field(description="how each round was drawn")
    history: list[HistorySource] | None = Field(
        default=None, description="what was known before the first label; empty: nothing was found; null: not asked for"
    )
    estimate: AccuracyEstimate | None = Field(
        description="the estimate, whose confusion is below; null: no label is in"
    )
    confusion: list[ConfusionCell] | None = Field(
        description="cells of the confusion matrix that a label is in, the largest share first; null: a regression"
    )
    course: list[CoursePoint] = Field(description="the estimate after each round")
    widths: WidthCourse | None = Field(
        default=None, description="half-widths of the interval against labels, those so far and forecast ones"
    )
    reliability: Reliability | None = Field(description="confidence beside accuracy; null: the features have none")
    values: list[LabelledValue] | None = Field(description="labels of a regression; null: a classification")
    gallery: Gallery | None = Field(description="mispredicted examples; null: no label is in")
    excluded: list[ExcludedExample] = Field(description="the first examples that could not be used")
    num_excluded: int = Field(ge=0, description="examples that could not be used")
    characterization: Characterization | None = Field(
        default=None, description="what the pool covers, as `opacc characterize` last found; null: it has not been run"
    )
    header: RunHeader = Field(description="the run: spec, digests, versions, commit")
    made_with: str = Field(description="version of opacc_ray that made the report")


class WrittenReport(Document):
    """The files of a report."""

    format: Literal["opacc-report-files/1"] = Field(
        default="opacc-report-files/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run")
    answer: str = Field(description="the result in one sentence")
    state: Literal["complete", "partial", "without labels"] = Field(description="whether all labels are in")
    files: list[str] = Field(description="URIs of the page, the document and the summary")
    tracked: list[str] = Field(default=[], description="where the numbers were logged")
    warnings: list[str] = Field(default=[], description="what could not be logged")


class WrittenCharacterization(Document):
    """The files of a characterisation, and what it says."""

    format: Literal["opacc-characterization-files/1"] = Field(
        default="opacc-characterization-files/1", description="name and version of this form"
    )
    characterization: Characterization = Field(description="what the data sets cover")
    files: list[str] = Field(description="URIs of the document, the page and the summary")
