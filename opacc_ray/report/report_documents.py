"""Documents of a report: ``report.json``, and the answers of `opacc report` and `opacc characterize`."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.runs.run_documents import AccuracyEstimate, HistorySource, RoundCounts, RunHeader, SliceTable
from opacc_ray.runs.series import Attempts


class CoursePoint(Part):
    """Estimate after a round."""

    round: int = Field(ge=1)  # number of the round
    labels: int = Field(ge=1)  # number of labels in all rounds so far
    value: float  # estimate
    low: float  # lower end of the interval
    high: float  # upper end of the interval
    anytime_low: float | None  # lower end of the anytime-valid interval; null: not yet known
    anytime_high: float | None  # upper end of the anytime-valid interval; null: not yet known


class Reliability(Part):
    """Confidence of the model over the pool."""

    mean_confidence: float = Field(ge=0, le=1)  # mean confidence over the pool
    bins: dict[str, float]  # mean confidence in each bin of the table by confidence
    # accuracy by predicted class that the confidence predicts, by falling number of expected failures
    expected: dict[str, float]
    histogram: list[int] = Field(default=[])  # examples of the pool in 20 equal bins of the confidence


class ConfusionCell(Part):
    """Estimated share of the pool with one true and one predicted class."""

    true: str  # true class
    predicted: str  # predicted class
    share: float  # estimated share of the pool
    standard_error: float = Field(ge=0)  # estimated standard error of the share
    labels: int = Field(ge=1)  # number of labels in the cell


class LabelledValue(Part):
    """A labelled example of a regression."""

    id: str  # id of the example
    label: float  # label
    prediction: float  # prediction of the model
    outcome: float = Field(ge=0, le=1)  # score of the prediction


class Misprediction(Part):
    """A labelled example that the model got wrong."""

    id: str  # id of the example
    round: int = Field(ge=1)  # round that selected it
    prediction: str  # predicted class or value
    label: str  # label
    confidence: float | None  # confidence of the prediction; null: unknown
    outcome: float = Field(ge=0, le=1)  # score of the prediction
    weight: float | None = None  # share of the pool that its label stands for in the estimate; null: unknown
    not_shown: str | None  # why the page shows no picture of it; null: it shows one
    shown: dict[str, str] = Field(default={})  # columns of its row that annotators see, with their texts


class Gallery(Part):
    """Mispredicted labelled examples."""

    total: int = Field(ge=0)  # number of mispredicted examples among the labelled ones
    order: str  # order of the examples
    examples: list[Misprediction]  # first mispredicted examples


class ExcludedExample(Part):
    """An example that could not be used."""

    id: str  # id of the example
    reason: str  # why it could not be used


class DrawnBy(Part):
    """Method and parameters that drew a round."""

    round: int = Field(ge=1)  # number of the round
    method: str  # name of the sampling method
    title: str  # description of the method
    seed: int  # seed of the draw
    parameters: dict[str, str]  # parameters of the method, as JSON
    is_random: bool = True  # whether the draw is random, so that its interval is certain


class Verdict(Part):
    """Whether the model meets the goal of the spec."""

    goal: float = Field(gt=0, lt=1)  # least accuracy, mean score or other metric that the model must have
    metric: str = ACCURACY  # the number that the goal is about, such as recall@defect
    met: bool | None  # whether the interval is above the goal, or below it; null: it contains it
    labels_to_go: int | None = None  # more labels that decide, as forecast; null: decided, or no forecast is possible
    half_width: float | None = None  # half-width of the interval that decides; null as above
    heading: str = ""  # the decision, in a few words
    detail: str = ""  # what it rests on, in one sentence


CheckState = Literal["ok", "warning", "failed"]


class Check(Part):
    """One of the four parts that a result rests on."""

    name: Literal["sampling", "labels", "pool", "model"]  # the part
    state: CheckState  # whether it supports the result
    text: str  # why, in sentences


class Finding(Part):
    """A weakness of the model that the labels prove."""

    text: str  # the weakness, in one sentence
    impact: float = Field(ge=0)  # share of the pool that it costs; findings are sorted by it


class NextStep(Part):
    """What to do next."""

    why: str  # the reason, in one sentence
    command: str  # the command to run


class PreviousAudit(Part):
    """The last earlier audit of the same population."""

    run: str  # URI of its run
    created: str | None  # when it was created: ISO 8601, UTC
    value: float  # its estimate
    low: float  # lower end of its interval
    high: float  # upper end of its interval
    same_model: bool  # whether the weights have the same digest


class Conclusion(Part):
    """What a report says first."""

    run: str  # URI of the run
    answer: str  # result in one sentence
    # whether all, some or no examples are answered; can't tell is an answer
    state: Literal["complete", "partial", "without labels"]
    verdict: Verdict | None = None  # whether the goal is met; null: no goal, or no label
    checks: list[Check] = Field(default=[])  # sampling, labels, pool and model: whether each is sound
    findings: list[Finding] = Field(default=[])  # at most five weaknesses that the labels prove
    no_findings: str = ""  # what to say if there are no findings; empty without labels
    next: NextStep | None = None  # what to do next


class RunReport(Conclusion, Document):
    """Content of the page of a report."""

    remedy: ClassVar[str] = "make it again with `opacc report`"

    format: Literal["opacc-report/1"] = "opacc-report/1"
    name: str  # name of the audit
    measure: str  # measure that is estimated: accuracy, or the score of a regression
    worth: str | None  # gain over a simple random sample, in one sentence
    # the last earlier audit of this name and population; null: none with an estimate
    previous: PreviousAudit | None = None
    warnings: list[str] = Field(default=[])  # reasons to doubt that this is the intended model
    pool_size: int = Field(ge=0)  # number of examples in the pool
    rounds: list[RoundCounts]  # numbers of every round
    drawn: list[DrawnBy]  # method and parameters of each round
    # sources of labels before the first round; empty: none were found; null: not requested
    history: list[HistorySource] | None = None
    estimate: AccuracyEstimate | None  # estimate of the accuracy or score; null: no labels yet
    tables: list[SliceTable] = Field(default=[])  # accuracy by predicted class, by true class and by bins of confidence
    # cells of the confusion matrix that have labels, by falling share; null: a regression
    confusion: list[ConfusionCell] | None
    course: list[CoursePoint]  # estimate after each round
    # confidence compared with accuracy; null: no confidence, or the result is no share of right answers
    reliability: Reliability | None
    values: list[LabelledValue] | None  # labels of a regression; null: a classification
    gallery: Gallery | None  # mispredicted examples; null: no labels yet
    excluded: list[ExcludedExample]  # first examples that could not be used
    num_excluded: int = Field(ge=0)  # number of examples that could not be used
    # section of an extension -> its document, such as the last of `opacc characterize`
    sections: dict[str, dict[str, Any]] = Field(default={})
    header: RunHeader  # spec, digests, versions and commit of the run
    attempts: Attempts | None = None  # the runs and draws of this pool that the output knows; null: not counted
    made_with: str  # version of opacc_ray that made the report


class WrittenReport(Conclusion, Document):
    """Files of a report, and what it says first."""

    format: Literal["opacc-report-files/1"] = "opacc-report-files/1"
    files: list[str]  # URIs of the page, the JSON document and the summary
