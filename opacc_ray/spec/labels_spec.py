"""What annotators get, and what their labels mean: ``manifest``, ``labels`` and ``score``."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from opacc_ray.documents import Section

ConflictRule = Literal["error", "majority", "latest"]
"""Treatment of examples with different labels."""

LINK_FIELDS = ("id", "uri", "run", "round")
"""Fields in braces of a manifest's link."""


def _link(value: str) -> str:
    unknown = [name for name in re.findall(r"\{([^{}]*)\}", value) if name not in LINK_FIELDS]
    if unknown:
        raise ValueError(f"{{{unknown[0]}}} is unknown; use {', '.join(f'{{{name}}}' for name in LINK_FIELDS)}")
    return value


class ManifestSpec(Section):
    """Files and links for annotators."""

    formats: list[Literal["jsonl", "csv"]] = Field(default=["jsonl", "csv"], description="file formats")
    show_prediction: bool = Field(default=False, description="include the model's prediction; it biases annotators")
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
    """Rules for returned labels; `opacc labels rule` changes them for an existing run."""

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


class ScoreSpec(Section):
    """Score of a regression's prediction, in [0, 1]; features do not depend on it."""

    error_scale: float | None = Field(
        default=None, gt=0, description="score = max(0, 1 - (error / error_scale)²); default: model.error_scale"
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
