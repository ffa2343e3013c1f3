"""The answer of `opacc compare`: models on one pool, by the labels of one run."""

from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.runs.estimate_documents import Basis, StatedEstimate


class ComparedModel(Part):
    """One of the models."""

    run: str = Field(description="URI of its run")
    accuracy: StatedEstimate = Field(description="its accuracy")
    best: float = Field(ge=0, le=1, description="probability that it is the most accurate, by the normal law")


class ComparedPair(Part):
    """Two of the models."""

    first: str = Field(description="URI of the run of one")
    second: str = Field(description="URI of the run of the other")
    difference: StatedEstimate = Field(
        description="first - second, in [-1, 1]; the intervals of all pairs hold together with the level"
    )
    num_first_better: int = Field(ge=0, description="labels on which the first has the higher outcome")
    num_second_better: int = Field(ge=0, description="labels on which the second has the higher outcome")
    num_unlike: int | None = Field(
        default=None, ge=0, description="examples of the pool on which the two say different things; null: not known"
    )


class ModelComparison(Basis, Document):
    """The model of a run beside others on the same pool, by the labels of the run."""

    format: Literal["opacc-comparison/1"] = Field(
        default="opacc-comparison/1", description="name and version of this form"
    )
    other: str = Field(description="URI of the other run, the first one given")
    same_listing: bool = Field(description="whether all pools were listed alike; else examples match by their ids")
    predicted: bool = Field(
        default=False, description="whether all labels predict, for each model, what is not labelled; else by design"
    )
    first: StatedEstimate = Field(description="accuracy of the model of the run")
    second: StatedEstimate = Field(description="accuracy of the other model")
    difference: StatedEstimate = Field(description="first - second, in [-1, 1]")
    num_first_better: int = Field(ge=0, description="labels on which the first has the higher outcome")
    num_second_better: int = Field(ge=0, description="labels on which the second has the higher outcome")
    num_unlike: int | None = Field(
        default=None, ge=0, description="examples of the pool on which the two say different things; null: not known"
    )
    models: list[ComparedModel] = Field(default=[], description="all models, that of the run first")
    differences: list[ComparedPair] = Field(default=[], description="all pairs of them")
