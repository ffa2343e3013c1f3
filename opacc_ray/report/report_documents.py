"""Documents of a report: ``report.json``, and the answers of `opacc report` and `opacc characterize`."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.runs.estimate_documents import AccuracyEstimate, RoundCounts, SliceTable
from opacc_ray.runs.run_documents import HistorySource, RunHeader
from opacc_ray.runs.series import Attempts


class CoursePoint(Part):
    """Estimate after a round."""

    round: int = Field(ge=1, description="number of the round")
    labels: int = Field(ge=1, description="number of labels in all rounds so far")
    value: float = Field(description="estimate")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")
    anytime_low: float | None = Field(description="lower end of the anytime-valid interval; null: not yet known")
    anytime_high: float | None = Field(description="upper end of the anytime-valid interval; null: not yet known")


class Reliability(Part):
    """Confidence of the model over the pool."""

    mean_confidence: float = Field(ge=0, le=1, description="mean confidence over the pool")
    bins: dict[str, float] = Field(description="mean confidence in each bin of the table by confidence")
    expected: dict[str, float] = Field(
        description="accuracy by predicted class that the confidence predicts, by falling number of expected failures"
    )
    histogram: list[int] = Field(default=[], description="examples of the pool in 20 equal bins of the confidence")


class ConfusionCell(Part):
    """Estimated share of the pool with one true and one predicted class."""

    true: str = Field(description="true class")
    predicted: str = Field(description="predicted class")
    share: float = Field(description="estimated share of the pool")
    standard_error: float = Field(ge=0, description="estimated standard error of the share")
    labels: int = Field(ge=1, description="number of labels in the cell")


class LabelledValue(Part):
    """A labelled example of a regression."""

    id: str = Field(description="id of the example")
    label: float = Field(description="label")
    prediction: float = Field(description="prediction of the model")
    outcome: float = Field(ge=0, le=1, description="score of the prediction")


class Misprediction(Part):
    """A labelled example that the model got wrong."""

    id: str = Field(description="id of the example")
    round: int = Field(ge=1, description="round that selected it")
    prediction: str = Field(description="predicted class or value")
    label: str = Field(description="label")
    confidence: float | None = Field(description="confidence of the prediction; null: unknown")
    outcome: float = Field(ge=0, le=1, description="score of the prediction")
    weight: float | None = Field(
        default=None, description="share of the pool that its label stands for in the estimate; null: unknown"
    )
    not_shown: str | None = Field(description="why the page shows no picture of it; null: it shows one")
    shown: dict[str, str] = Field(default={}, description="columns of its row that annotators see, with their texts")


class Gallery(Part):
    """Mispredicted labelled examples."""

    total: int = Field(ge=0, description="number of mispredicted examples among the labelled ones")
    order: str = Field(description="order of the examples")
    examples: list[Misprediction] = Field(description="first mispredicted examples")


class ExcludedExample(Part):
    """An example that could not be used."""

    id: str = Field(description="id of the example")
    reason: str = Field(description="why it could not be used")


class DrawnBy(Part):
    """Method and parameters that drew a round."""

    round: int = Field(ge=1, description="number of the round")
    method: str = Field(description="name of the sampling method")
    title: str = Field(description="description of the method")
    seed: int = Field(description="seed of the draw")
    parameters: dict[str, str] = Field(description="parameters of the method, as JSON")
    is_random: bool = Field(default=True, description="whether the draw is random, so that its interval is certain")


class Verdict(Part):
    """Whether the model meets the goal of the spec."""

    goal: float = Field(gt=0, lt=1, description="least accuracy, mean score or other metric that the model must have")
    metric: str = Field(default=ACCURACY, description="the number that the goal is about, such as recall@defect")
    met: bool | None = Field(description="whether the interval is above the goal, or below it; null: it contains it")
    labels_to_go: int | None = Field(
        default=None, description="more labels that decide, as forecast; null: decided, or no forecast is possible"
    )
    half_width: float | None = Field(default=None, description="half-width of the interval that decides; null as above")
    heading: str = Field(default="", description="the decision, in a few words")
    detail: str = Field(default="", description="what it rests on, in one sentence")


CheckState = Literal["ok", "warning", "failed"]


class Check(Part):
    """One of the four parts that a result rests on."""

    name: Literal["sampling", "labels", "pool", "model"] = Field(description="the part")
    state: CheckState = Field(description="whether it supports the result")
    text: str = Field(description="why, in sentences")


class Finding(Part):
    """A weakness of the model that the labels prove."""

    text: str = Field(description="the weakness, in one sentence")
    impact: float = Field(ge=0, description="share of the pool that it costs; findings are sorted by it")


class NextStep(Part):
    """What to do next."""

    why: str = Field(description="the reason, in one sentence")
    command: str = Field(description="the command to run")


class PreviousAudit(Part):
    """The last earlier audit of the same population."""

    run: str = Field(description="URI of its run")
    created: str | None = Field(description="when it was created: ISO 8601, UTC")
    value: float = Field(description="its estimate")
    low: float = Field(description="lower end of its interval")
    high: float = Field(description="upper end of its interval")
    same_model: bool = Field(description="whether the weights have the same digest")


class Conclusion(Part):
    """What a report says first."""

    run: str = Field(description="URI of the run")
    answer: str = Field(description="result in one sentence")
    state: Literal["complete", "partial", "without labels"] = Field(
        description="whether all, some or no examples are answered; can't tell is an answer"
    )
    verdict: Verdict | None = Field(default=None, description="whether the goal is met; null: no goal, or no label")
    checks: list[Check] = Field(default=[], description="sampling, labels, pool and model: whether each is sound")
    findings: list[Finding] = Field(default=[], description="at most five weaknesses that the labels prove")
    no_findings: str = Field(default="", description="what to say if there are no findings; empty without labels")
    next: NextStep | None = Field(default=None, description="what to do next")


class RunReport(Conclusion, Document):
    """Content of the page of a report."""

    remedy: ClassVar[str] = "make it again with `opacc report`"

    format: Literal["opacc-report/1"] = format_field("opacc-report/1")
    name: str = Field(description="name of the audit")
    measure: str = Field(description="measure that is estimated: accuracy, or the score of a regression")
    worth: str | None = Field(description="gain over a simple random sample, in one sentence")
    previous: PreviousAudit | None = Field(
        default=None, description="the last earlier audit of this name and population; null: none with an estimate"
    )
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the intended model")
    pool_size: int = Field(ge=0, description="number of examples in the pool")
    rounds: list[RoundCounts] = Field(description="numbers of every round")
    drawn: list[DrawnBy] = Field(description="method and parameters of each round")
    history: list[HistorySource] | None = Field(
        default=None,
        description="sources of labels before the first round; empty: none were found; null: not requested",
    )
    estimate: AccuracyEstimate | None = Field(description="estimate of the accuracy or score; null: no labels yet")
    tables: list[SliceTable] = Field(
        default=[], description="accuracy by predicted class, by true class and by bins of confidence"
    )
    confusion: list[ConfusionCell] | None = Field(
        description="cells of the confusion matrix that have labels, by falling share; null: a regression"
    )
    course: list[CoursePoint] = Field(description="estimate after each round")
    reliability: Reliability | None = Field(
        description="confidence compared with accuracy; null: no confidence, or the result is no share of right answers"
    )
    values: list[LabelledValue] | None = Field(description="labels of a regression; null: a classification")
    gallery: Gallery | None = Field(description="mispredicted examples; null: no labels yet")
    excluded: list[ExcludedExample] = Field(description="first examples that could not be used")
    num_excluded: int = Field(ge=0, description="number of examples that could not be used")
    sections: dict[str, dict[str, Any]] = Field(
        default={}, description="section of an extension -> its document, such as the last of `opacc characterize`"
    )
    header: RunHeader = Field(description="spec, digests, versions and commit of the run")
    attempts: Attempts | None = Field(
        default=None, description="the runs and draws of this pool that the output knows; null: not counted"
    )
    made_with: str = Field(description="version of opacc_ray that made the report")


class WrittenReport(Conclusion, Document):
    """Files of a report, and what it says first."""

    format: Literal["opacc-report-files/1"] = format_field("opacc-report-files/1")
    files: list[str] = Field(description="URIs of the page, the JSON document and the summary")
