"""The steps of an audit: ``extract``, ``sample``, ``manifest``, ``labels``, ``score`` and ``goal``."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from opacc_ray.documents import Section
from opacc_ray.errors import SpecError, shortened
from opacc_ray.metrics.metric import ACCURACY, parse_metric
from opacc_ray.neurons.requirements import Criterion
from opacc_ray.samplers import parse_parameters
from opacc_ray.spec.model_spec import ModelSpec, served_texts
from opacc_ray.spec.validation import read_share, share_of

Feature = Literal["hidden", "output", "prediction", "confidence", "dsa", "lsa", "coverage"]

ConflictRule = Literal["error", "majority", "latest"]
"""Treatment of examples with different labels."""

LINK_FIELDS = ("id", "uri", "run", "round")
"""Fields in braces of a manifest's link."""


# -- extract ---------------------------------------------------------------------------------------------------


class CoverageSpec(Section):
    """The requirements of neuron coverage: see :mod:`opacc_ray.neurons.requirements`."""

    criterion: Annotated[str, AfterValidator(lambda value: str(Criterion.parse(value)))] = Field(
        default="nc:0.5", description="nc:β, nc-raw:β, kmnc:k, nbc, snac or tknc:k"
    )
    layers: list[str] | None = Field(
        default=None, min_length=1, description="dotted names; default: every layer with weights"
    )

    @property
    def rule(self) -> Criterion:
        return Criterion.parse(self.criterion)


def _selectors(value: dict[str, str]) -> dict[str, str]:
    """Return the values as Ray's label selectors, without spaces."""
    packed = {key: "".join(wanted.split()) for key, wanted in value.items()}
    name = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
    for key, wanted in packed.items():
        if not re.fullmatch(rf"!?({name}|in\({name}(,{name})*\))", wanted):
            raise ValueError(
                f"{key}: {shortened(value[key])} is not a label selector; write eu, !eu, in(eu,us) or !in(eu,us)"
            )
    return packed


_PLACEMENT = "placement"
Value = TypeVar("Value")
Placement = Annotated[Value, _PLACEMENT]
"""A key for placement or timeouts, which does not change features."""


class ExtractSpec(Section):
    """Features to compute, and how.

    batch_size, shard_size, precision, threads, features and coverage determine the result.
    """

    batch_size: int = Field(default=256, ge=1, description="examples per call of the model")
    shard_size: int = Field(default=1024, ge=1, description="examples per shard, the unit of work and of resume")
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        default="float32", description="number type of the model's computation; features are stored as float32"
    )
    threads_per_actor: int = Field(default=1, ge=1, description="CPU threads of the model per actor")
    actors: Placement[Annotated[int, Field(ge=1)] | Literal["auto"]] = Field(
        default="auto",
        description="most copies of the model; there are fewer if the cluster has less room; auto: no limit",
    )
    gpus_per_actor: Placement[Annotated[float, Field(ge=0)] | Literal["auto"]] = Field(
        default="auto", description="GPUs per actor; 0.5: two actors share one; auto: 1 if the cluster has GPUs, else 0"
    )
    node_labels: Placement[Annotated[dict[str, str], AfterValidator(_selectors)]] = Field(
        default={},
        description="only nodes with these labels, such as {ray.io/accelerator-type: H100} or {region: eu}; also !eu, "
        "in(eu,us) and !in(eu,us)",
    )
    autoscaling: Placement[bool] = Field(
        default=False, description="the cluster may grow: ask it for all actors, and wait instead of refusing the run"
    )
    shard_timeout: Placement[float | None] = Field(
        default=1800, gt=0, description="most seconds for a shard before its actor counts as hung; null: no limit"
    )
    features: list[Feature] | None = Field(
        default=None, description="default: those of the forward pass, and those that the method needs"
    )
    coverage: CoverageSpec = Field(default=CoverageSpec(), description="for methods that need coverage: deepreduce")
    on_bad_item: Literal["error", "exclude"] = Field(
        default="error", description="treatment of an unreadable example: end the run, or exclude and count it"
    )


PLACEMENT = tuple(name for name, info in ExtractSpec.model_fields.items() if _PLACEMENT in info.metadata)
"""Keys of ``extract`` for placement and timeouts, which do not change features."""


# -- sample, manifest, labels and score ------------------------------------------------------------------------


class SampleSpec(BaseModel):
    """The method, its budget, and the method's own parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)

    method: str = Field(default="neyman", description="see methods.md, or `opacc methods`")
    budget: int | None = Field(
        default=None, description="number of labels; only deepreduce, and ces with stop_at_kl, need none"
    )
    models: list[str] | None = Field(
        default=None,
        min_length=1,
        description="neyman: URIs of runs of other models on the same pool, to be audited with the same labels",
    )
    fresh: bool = Field(
        default=False,
        description="draw from the whole pool, even if labels of an earlier run of the audit could be carried over",
    )

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def settings(self) -> Any:
        """Return the checked ``Parameters`` of the method, with defaults."""
        return parse_parameters(self.method, self.parameters)

    @model_validator(mode="before")
    @classmethod
    def _read_served(cls, content: Any) -> Any:
        if isinstance(content, dict) and "serve" in content:
            return content | {"serve": served_texts(content["serve"])}
        return content

    @model_validator(mode="after")
    def _fits_the_method(self) -> "SampleSpec":
        settings = self.settings
        if self.models and not settings.serves_several:
            raise ValueError(f"models is not supported for method {self.method!r}; remove it, or choose neyman")
        if self.budget is not None and self.budget < 1:
            raise ValueError(f"budget={self.budget}: give a whole number of labels, at least 1")
        return self


def _link(value: str) -> str:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", value) if name not in LINK_FIELDS]
    if unknown:
        raise ValueError(f"{{{unknown[0]}}} is unknown; use {', '.join(f'{{{name}}}' for name in LINK_FIELDS)}")
    return value


class ManifestSpec(Section):
    """Files and links for annotators."""

    show: list[str] = Field(
        default=[],
        description="tables: columns that annotators see of a row, such as [subject, text]; nothing else of it is "
        "written for them",
    )
    link: Annotated[str, AfterValidator(_link)] | None = Field(
        default=None,
        description="link for annotators, with {id}, {uri}, {run} and {round}; default: the URI, except local paths",
    )


class ClassGuide(Section):
    """What annotators are told about a class."""

    text: str | None = Field(default=None, description="a sentence")
    pictures: list[str] = Field(default=[], description="URIs of images that are examples of it")


def _class_guides(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else ()
    return {str(name): {"text": own} if isinstance(own, str) else own for name, own in items} if items else value


class Guidance(Section):
    """What annotators are asked and told."""

    question: str | None = Field(default=None, max_length=300, description="question to annotators, above each example")
    guide: str | None = Field(default=None, description="instructions for annotators, in Markdown")
    describe: Annotated[dict[str, ClassGuide], BeforeValidator(_class_guides)] = Field(
        default={}, description="class or grade: a sentence, or {text: …, pictures: [URI, ...]}"
    )
    unit: str | None = Field(default=None, max_length=30, description="unit of numbers, such as years")
    range: tuple[float, float] | None = Field(
        default=None, description="usual numbers, lowest and highest: the page asks before it saves others"
    )

    @model_validator(mode="after")
    def _has_a_range(self) -> Self:
        if self.range and not self.range[0] < self.range[1]:
            raise ValueError(f"range: {list(self.range)} is empty; give the lowest number and the highest")
        return self


class LabelsSpec(Guidance):
    """Rules for returned labels; `opacc labels import --conflict` changes them for an existing run."""

    @property
    def guidance(self) -> Guidance:
        """What annotators are asked and told."""
        return Guidance(**{name: getattr(self, name) for name in Guidance.model_fields})

    conflict: ConflictRule = Field(
        default="error",
        description="treatment of examples with different labels: refuse them, or take the most frequent or the latest",
    )
    overlap: float = Field(
        default=0.0, ge=0, le=1, description="fraction of the examples that two people label, to measure label noise"
    )
    numbers_are_classes: bool = Field(
        default=False, description="classes with names: accept a number as the index of a class, from 0"
    )

    def check(self, model: ModelSpec) -> None:
        """Raise SpecError for a key that does not fit the task, or the classes or grades of a model."""
        known = model.classes or list(model.outcomes or ())
        unknown = next((name for name in self.describe if name not in known), None)
        if unknown is not None and known:
            raise SpecError(f"labels.describe names {unknown!r}, which is none of {shortened(', '.join(known), 200)}")
        if (self.unit or self.range) and not model.reads_numbers:
            key = "unit" if self.unit else "range"
            raise SpecError(f"labels.{key} is only supported for labels that are numbers; remove it")
        digits = next((name for name in model.classes or () if name.strip().isdecimal()), None)
        if self.numbers_are_classes and (digits or not model.has_classes):
            why = f"the name of class {digits!r} is a number" if digits else f"task {model.task} has no classes"
            raise SpecError(f"labels.numbers_are_classes: {why}; remove it")


class ScoreSpec(Section):
    """Score of a regression's prediction, in [0, 1]; features do not depend on it."""

    error_scale: float | None = Field(
        default=None, gt=0, description="score = max(0, 1 - (error / error_scale)²); default: 1"
    )
    within: float | None = Field(default=None, gt=0, description="score = 1 where the error is at most this, else 0")
    exact: bool | None = Field(
        default=None, description="multilabel: score = 1 where all classes are right, else 0; default: Jaccard index"
    )

    @model_validator(mode="after")
    def _is_one(self) -> "ScoreSpec":
        if self.error_scale is not None and self.within is not None:
            raise ValueError("error_scale and within both define the score; remove one")
        return self

    def check(self, task: str) -> None:
        """Raise SpecError for a score that does not fit a task."""
        if task not in ("regression", "multilabel") and self != ScoreSpec():
            raise SpecError(
                f"score is only supported for regressions and multilabel, and model.task is {task}; remove it"
            )
        if task == "regression" and self.exact is not None:
            raise SpecError("score.exact is only supported for multilabel; remove it")
        if task == "multilabel" and (self.error_scale or self.within):
            raise SpecError("score.error_scale and score.within are only supported for regressions; remove them")


# -- goal ------------------------------------------------------------------------------------------------------

Share = Annotated[float, Field(gt=0, lt=1)]


class Least(NamedTuple):
    """What a model must reach, and the number that it is about."""

    share: float
    metric: str = ACCURACY

    @classmethod
    def of(cls, goal: "float | Mapping[str, float]") -> "Least":
        """Return a goal as a spec has it: a share, or a metric with one."""
        if not isinstance(goal, Mapping):
            return cls(goal)
        [(metric, share)] = goal.items()
        return cls(share, metric)

    @classmethod
    def parse(cls, text: str) -> "Least":
        """Read ``0.9``, ``90 %`` or ``recall@defect 0.9``; raises SpecError for anything else."""
        try:
            name, share = read_share(str(text))
        except ValueError as meant:
            raise SpecError(
                f"goal {text!r}: give a share between 0 and 1, such as 0.9 or 'recall@defect 0.9'{meant}"
            ) from None
        try:
            return cls.of(share if name is None else _goal_of({name: share}))
        except ValueError as error:
            raise SpecError(f"goal {text!r}: {error}") from None


def _goal_of(value: Any) -> Any:
    """Return a goal as it is kept: a share, or a metric with one; raises ValueError."""
    if not isinstance(value, dict):
        return share_of(value)
    if len(value) != 1:
        raise ValueError(f"it names {len(value)} numbers; give one, such as {{recall@defect: 90 %}}")
    [(name, share)] = value.items()
    metric = parse_metric(str(name))
    if not metric.is_best_high:
        raise ValueError(f"{name} is best at 0, and a goal is the least value of a number; choose another one")
    return share_of(share) if metric.name == ACCURACY else {str(metric): share_of(share)}


Goal = Annotated[Share | dict[str, Share], BeforeValidator(_goal_of)]
"""The value of ``goal``."""
