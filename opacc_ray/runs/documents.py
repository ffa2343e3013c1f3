"""The documents of a run: what its prefix keeps as JSON, and what its commands answer.

| document | where |
|---|---|
| :class:`RunHeader` | ``spec.json`` |
| :class:`Draw` | ``rounds/N/draw-1.json`` |
| :class:`DrawnRound` | answer of `opacc run`, `select` and `next` |
| :class:`Goal` | ``rounds/N/goal.json`` |
| :class:`ClosedRound` | ``rounds/N/closed.json`` |
| :class:`AccuracyEstimate` | ``estimate.json``, answer of `opacc estimate` |

`sanity_documents.py` has what was noticed of the model, `state_documents.py` those that say how a run stands,
`comparison_documents.py` the answer of `opacc compare`, `budget_documents.py` that of `opacc budget`.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, SealedDocument, Upgrade
from opacc_ray.estimators.accuracy_estimate import as_html, as_text
from opacc_ray.extract.code import Code
from opacc_ray.extract.feature_set import FeatureLink
from opacc_ray.runs.sanity_documents import Predicted
from opacc_ray.spec import Spec

# -- the run -------------------------------------------------------------------------------------------------


class IgnoredFiles(Part):
    """What the pool's prefix holds beside the files of its format."""

    kind: str = Field(description="a suffix, or what is no regular file, such as a FIFO")
    num_files: int = Field(ge=1, description="how many")
    first: list[str] = Field(description="some of their names")


class PoolListing(Part):
    """The pool as it was listed when the run was made."""

    digest: str = Field(description="digest of the listing: which files, how large, which version of each")
    num_files: int | None = Field(default=None, ge=0, description="files in the pool")
    num_shards: int = Field(ge=0, description="shards that they are extracted in")
    ignored: list[IgnoredFiles] = Field(default=[], description="what else lies there and is not read, by kind")
    version: str | None = Field(
        default=None, description="version of the table that all shards are of; null of a pool that is none"
    )


class ReferenceListing(Part):
    """The reference that features compare with."""

    digest: str = Field(description="digest of its data, the model, and how it is extracted; its folder's name")


class ModelDigest(Part):
    """The model under audit."""

    sha256: str | None = Field(description="digest of the weights; null if the factory brings its own")


def _header_of_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """Version 1 could leave out what says where a run comes from."""
    unknown = {"digest": None, "reference": None, "model": {"sha256": None}, "versions": {}, "git_commit": None}
    return unknown | {"created": None} | content | {"format": "opacc-run/2"}


class RunHeader(SealedDocument):
    """What a run is: its spec, and where all that decides its result comes from."""

    upgrades: ClassVar[dict[str | None, Upgrade]] = {"opacc-run/1": _header_of_version_1}
    remedy: ClassVar[str] = "restore it or start a new run"

    format: Literal["opacc-run/2"] = Field(default="opacc-run/2", description="name and version of this form")
    spec: Spec = Field(description="the spec, with every default")
    digest: str | None = Field(description="digest of all that decides the result; null in old runs")
    pool: PoolListing = Field(description="the pool as it was listed")
    reference: ReferenceListing | None = Field(description="the reference; null if no feature compares with one")
    features: FeatureLink | None = Field(
        default=None, description="the set that holds the features; null if they lie in the run's own prefix"
    )
    code: Code | None = Field(
        default=None, description="the code that made the features; null if the pool holds them, and in older runs"
    )
    model: ModelDigest = Field(description="the model's weights")
    versions: dict[str, str] = Field(description="version of Python and of each package that matters")
    git_commit: str | None = Field(description="commit of the directory that the run was started in, if it has one")
    created: str | None = Field(description="when the run was made: ISO 8601, UTC")


class DrawnFile(Part):
    """A file of a draw."""

    sha256: str = Field(description="SHA-256 of its content")
    size: int = Field(ge=0, description="bytes")


class Draw(SealedDocument):
    """The files of a round, all of one draw. It is created once, after them: the round exists when it does."""

    format: Literal["opacc-draw/1"] = Field(default="opacc-draw/1", description="name and version of this form")
    run: str | None = Field(
        description="digest of the run that it was drawn for, with /TRACK if not for its first track; "
        "null in runs of version 0.1.0"
    )
    features: str | None = Field(
        default=None, description="digest of the features that it was drawn from; null in runs of version 0.1.0"
    )
    folder: str = Field(description="where they lie below the round: draws/ and a digest of all of them")
    files: dict[str, DrawnFile] = Field(description="by name: selection.json, predictions.parquet, manifests")


class ChangedObjects(Part):
    """Objects of the pool that hold chosen examples, as they are now beside what the model saw."""

    changed: int = Field(ge=0, description="objects with another content, by their tags")
    lost: int = Field(ge=0, description="objects that are gone")
    unknown: int = Field(ge=0, description="objects that could not be compared")
    first: list[str] = Field(description="keys of the first that changed or are gone")
    reason: str | None = Field(default=None, description="why nothing was compared; null if it was")
    version: str | None = Field(
        default=None, description="the table's version now, if it is not the run's and the spec does not pin that"
    )


class RoundLook(Part):
    """What the labels say after a round."""

    round: int = Field(ge=1, description="number of the round")
    labels: int = Field(ge=1, description="labels of all rounds so far")
    half_width: float = Field(ge=0, description="half the width of the interval")
    cautious_half_width: float = Field(ge=0, description="the one that decides: wider while few failures are met")


class GoalProgress(Part):
    """How near the labels are to a goal of `opacc next --until`, and what it takes."""

    half_width: float = Field(gt=0, description="the goal: half the width of the interval")
    level: float = Field(gt=0, lt=1, description="how often the interval holds that is stated at the goal")
    look_level: float = Field(gt=0, lt=1, description="level at which the intervals of all looks are made, for that")
    reached: bool = Field(description="whether it is reached")
    value: float = Field(description="the estimate so far")
    low: float = Field(description="lower end of its interval; the one to state if the goal is reached")
    high: float = Field(description="upper end of its interval")
    reason: str | None = Field(description="what it rests on, if not on the sampling design alone")
    looks: list[RoundLook] = Field(description="the look after each round that is whole or closed")
    total_labels: int = Field(ge=1, description="about how many labels the goal takes in all, or how many it took")
    labels_to_go: int = Field(ge=0, description="about how many of them are still to come")
    sizes: list[int] = Field(description="labels of the further rounds, if all goes as forecast")
    srs_labels: int = Field(ge=1, description="labels that a simple random sample takes in all, planned in advance")
    advice: str | None = Field(description="one sentence if the goal is not to be had at a sensible price")
    earlier_goals: list[float] = Field(description="other goals asked for before, in their order")


class Goal(GoalProgress, SealedDocument):
    """What `opacc next --until` found after a round, and what it decided."""

    remedy: ClassVar[str] = "restore it, or delete it"

    format: Literal["opacc-goal/1"] = Field(default="opacc-goal/1", description="name and version of this form")


class DrawnRound(Document):
    """A round whose examples wait for labels; or the answer that no further round is needed."""

    format: Literal["opacc-round/1"] = Field(default="opacc-round/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    track: str | None = Field(default=None, description="the track that the round is of; null: the first one")
    method: str | None = Field(default=None, description="the sampling method; null if nothing was drawn")
    round: int | None = Field(default=None, ge=1, description="number of the round; null if nothing was drawn")
    n: int = Field(default=0, ge=0, description="draws; an example that is drawn twice counts twice")
    labelled: int = Field(
        default=0, ge=0, description="examples of it that had a label before, which the manifests leave out"
    )
    pool_size: int | None = Field(default=None, ge=0, description="examples in the pool; null if nothing was drawn")
    manifests: list[str] = Field(default=[], description="URIs of the manifests for annotators")
    notice: str | None = Field(default=None, description="what the labels so far say against how examples are chosen")
    objects: ChangedObjects | None = Field(
        default=None, description="which objects of its examples changed since extraction; null if nothing was drawn"
    )
    predicted: Predicted | None = Field(
        default=None, description="what the model predicts of the pool; null: not known, or nothing was drawn"
    )
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the model that is meant")
    reached: bool | None = Field(
        default=None, description="whether the interval is as narrow as `--until` asks; null without it"
    )
    labels_to_go: int | None = Field(
        default=None, ge=0, description="about how many more labels `--until` takes; null without it"
    )
    goal: GoalProgress | None = Field(default=None, description="how near `--until` is; null without it")


# -- labels --------------------------------------------------------------------------------------------------


class RoundCounts(Part):
    """A round in numbers."""

    round: int = Field(ge=1, description="number of the round")
    method: str = Field(description="the sampling method")
    budget: int = Field(ge=0, description="draws")
    labelled: int = Field(ge=0, description="draws that have a label")
    missing: int = Field(ge=0, description="examples that wait for a label")
    unsure: int = Field(ge=0, description="examples on which nobody could tell")
    given_up: int = Field(ge=0, description="examples without a label when the round was closed")


class UnusedRows(Part):
    """Rows of a file of labels that are not used: their examples were given up, and not drawn again."""

    track: str | None = Field(default=None, description="the track of the round; null: the first one")
    round: int = Field(ge=1, description="the round that was closed without them")
    rows: int = Field(ge=1, description="how many")


def _closed_of_version_1(content: dict[str, Any]) -> dict[str, Any]:
    return content | {"selection": None, "format": "opacc-closed/2"}


class ClosedRound(SealedDocument):
    """A round that will not be completed."""

    upgrades: ClassVar[dict[str | None, Upgrade]] = {None: _closed_of_version_1}
    remedy: ClassVar[str] = "restore it, or delete it to open the round again"

    format: Literal["opacc-closed/2"] = Field(default="opacc-closed/2", description="name and version of this form")
    selection: str | None = Field(description="SHA-256 of the selection of the round; null in runs of version 0.1.0")
    given_up: list[str] = Field(description="ids without a label: they count as not drawn")


# -- results -------------------------------------------------------------------------------------------------


class Interval(Part):
    """A confidence interval."""

    low: float = Field(description="its lower end")
    high: float = Field(description="its upper end")
    level: float = Field(gt=0, lt=1, description="confidence level")
    interval: str = Field(description="name of the interval")


class Value(Part):
    """An estimated number."""

    value: float = Field(description="the estimate; an unbiased one may lie outside of its interval")
    standard_error: float = Field(ge=0, description="estimated standard error")


class StatedEstimate(Interval, Value):
    """A value with its interval."""

    n: int = Field(ge=0, description="draws it rests on")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    reason: str | None = Field(description="if it does not: what it rests on")

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


class AssistedEstimate(StatedEstimate):
    """The accuracy, estimated with the help of the confidence of the whole pool."""

    strength: float = Field(ge=0, le=1, description="how far the confidence is trusted: 0 not at all, 1 fully")


class MeanCost(StatedEstimate):
    """The mean cost per example.

    Where every error costs the same it is that of the share of failures. Else it rests on how the rounds were drawn,
    not on what their labels predict, and may differ a little from what the accuracy lets one expect.
    """

    costs: dict[str, float | dict[str, float]] = Field(
        description="true class -> cost of missing it, or -> predicted class -> cost of that confusion"
    )


class LabelNoise(Interval):
    """The interval of the accuracy by what annotators typically say, whatever a single label got wrong."""

    examples: int = Field(ge=1, description="labelled examples on which two or more named annotators gave an opinion")
    differ: int = Field(ge=0, description="of them, those on which the outcomes of two opinions differ")
    disagreement: float = Field(
        ge=0, description="estimated mean difference of the outcomes of two opinions, over the pool"
    )
    disagreement_high: float = Field(ge=0, description="upper end of its interval")
    alpha: float | None = Field(
        default=None,
        description="Krippendorff's alpha of the labels; null where not defined, and in old estimates",
    )
    reason: str | None = Field(description="if the interval is not design-based: what it rests on")


class SimpleRandomBaseline(Interval):
    """A simple random sample of as many labels, with the estimated accuracy."""

    n: int = Field(ge=0, description="distinct examples labelled")
    effective_size: float | None = Field(
        description="labels of a simple random sample that would be as precise; null if that cannot be told"
    )


class AnytimeInterval(Interval):
    """The confidence sequence so far: it holds however often one looks."""

    reason: str | None = Field(description="which labels it does not count yet")


class ConfusionShares(Part):
    """How often each class of the pool is taken for each: rows are true classes, columns predicted ones."""

    classes: list[str] = Field(description="C classes that a label or a prediction of one names, in order")
    share: list[list[float]] = Field(description="(C, C) share of the pool; all sum to 1")
    standard_error: list[list[float]] = Field(description="(C, C) estimated standard errors of the shares")
    num: list[list[int]] = Field(description="(C, C) labels")
    reason: str | None = Field(description="if the shares are not design-based: what they rest on")


class Basis(Part):
    """What a result is of, and what it leaves out."""

    run: str = Field(description="URI of the run")
    track: str | None = Field(default=None, description="the track whose rounds it rests on; null: the first one")
    measure: str = Field(default="accuracy", description="what is stated: the accuracy, or the score of a regression")
    clipped: int = Field(
        default=0, ge=0, description="labels of a regression so far from the prediction that they score 0, however far"
    )
    pool_size: int = Field(ge=0, description="examples in the pool that the accuracy is stated for")
    excluded: int = Field(ge=0, description="further examples that could not be read, and are not counted")
    missing: int = Field(ge=0, description="examples that wait for a label")
    unsure: int = Field(ge=0, description="examples on which nobody could tell")
    given_up: int = Field(ge=0, description="examples without a label when their round was closed")
    rounds: list[RoundCounts] = Field(description="every round in numbers")
    objects: ChangedObjects | None = Field(
        default=None, description="which objects of chosen examples changed since extraction; null in old estimates"
    )


def _estimate_of_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """Version 1 left out what was not asked for, or not possible."""
    optional = ("assisted", "mean_cost", "pool_by_predicted_class", "by_predicted_class", "by_true_class", "confusion")
    return dict.fromkeys(optional) | content | {"format": "opacc-estimate/2"}


class AccuracyEstimate(Basis, StatedEstimate, SealedDocument):
    """The accuracy of the model on the pool, from the labels of all rounds.

    ``low`` and ``high`` are the interval to state: ``allows_for`` names what it allows for besides the sampling design.
    """

    upgrades: ClassVar[dict[str | None, Upgrade]] = {None: _estimate_of_version_1}
    remedy: ClassVar[str] = "delete it and run `opacc estimate` again"

    format: Literal["opacc-estimate/2"] = Field(default="opacc-estimate/2", description="name and version of this form")
    labels_digest: str = Field(description="digest of the labels it was made of: with others it is not current")
    label_files: list[str] = Field(
        default=[], description="files of labels, and of what was done with them, that it was made of"
    )
    allows_for: list[Literal["stopping", "label noise"]] = Field(
        default=[], description="what the interval allows for besides the sampling design"
    )
    goal: float | None = Field(
        default=None, gt=0, description="half-width at which `opacc next --until` stopped; null: it did not"
    )
    by_design: StatedEstimate | None = Field(
        default=None, description="the accuracy with the interval of the sampling design alone; null in old estimates"
    )
    notes: list[str] = Field(default=[], description="what a reader must know of the number, in sentences")
    srs: SimpleRandomBaseline = Field(description="what a simple random sample would have given")
    sequence: AnytimeInterval = Field(description="an interval that holds at any time")
    assisted: AssistedEstimate | None = Field(description="with the help of the confidence; null unless asked for")
    mean_cost: MeanCost | None = Field(description="the mean cost per example; null unless costs were given")
    label_noise: LabelNoise | None = Field(
        default=None, description="the interval widened for errors of annotators; null without second opinions"
    )
    pool_by_predicted_class: dict[str, int] | None = Field(
        description="predicted class -> examples of the pool; null for regressions, and where it is not known"
    )
    by_predicted_class: dict[str, StatedEstimate] | None = Field(
        description="accuracy where the model predicts a class; null for regressions"
    )
    by_true_class: dict[str, StatedEstimate] | None = Field(
        description="accuracy on the examples of a class; null for regressions"
    )
    confusion: ConfusionShares | None = Field(description="the confusion matrix; null for regressions")
    warnings: list[str] = Field(default=[], description="reasons to doubt that this is the model that is meant")
