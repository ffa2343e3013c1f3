"""The documents of `opacc characterize` and `opacc generate`: ``characterization.json`` and ``generation.json``."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, format_field

DOCUMENT = "characterization.json"
"""Name of the file of a characterisation."""

Name = Literal["pool", "selection", "set", "reference"]

Share = Annotated[float, Field(ge=0, le=1)]


class Moved(Part):
    """Whether the features of a class have moved from the reference, by a permutation test."""

    sd: float = Field(ge=0, description="largest difference of means, in standard deviations of the class")
    p: Share = Field(description="probability of one as large in any class by chance, by random exchange of examples")
    detects: float = Field(
        ge=0, description="move along one direction, in the same unit, that is found with probability 0.8 at level 0.05"
    )


class ClassCoverage(Part):
    """Coverage of one class; null if unknown, and the remarks give the reason."""

    name: str = Field(description="name of the class")
    examples: int = Field(ge=0, description="examples of the class")
    ep: float = Field(ge=0, description="equivalence partitioning: its share of the examples, times the classes")
    cp: Share | None = Field(description="centroid positioning: share of them near their centroid")
    bc: Share | None = Field(description="boundary conditioning: share of them near a boundary")
    pbc: dict[str, Share] | None = Field(
        description="pairwise boundary conditioning: other class -> share of them near the boundary to it, if any"
    )
    shift: Share | None = Field(
        default=None, description="Jensen-Shannon divergence of their features from those of the reference"
    )
    shift_error: float | None = Field(default=None, description="its standard error, by Monte Carlo")
    shift_floor: Share | None = Field(
        default=None, description="the same between random parts of both sets together, as large as they are"
    )
    moved: Moved | None = Field(
        default=None, description="whether their features have moved; null: they are too few, or it was not asked for"
    )


class SetCoverage(Part):
    """Coverage of one data set: classes, centres and boundaries."""

    name: Name = Field(
        description="the pool; the examples of all rounds; a set without a run; or what these are compared with"
    )
    examples: int = Field(ge=1, description="examples in it")
    grouped_by: Literal["prediction", "label"] = Field(description="how examples are assigned to classes")
    classes: list[ClassCoverage] = Field(description="every class of the model, in its order")
    requirements: int | None = Field(
        default=None, ge=0, description="requirements of neuron coverage that the set meets; null: it has no coverage"
    )
    remarks: list[str] = Field(description="remarks on measures that are unknown, with the reason")


class ModelCoverage(Part):
    """Coverage of the data sets of one run, or of one set without a run."""

    run: str = Field(description="URI of the run or of the set; empty: a set in memory")
    name: str = Field(description="name of its audit, or of the set")
    reference: str | None = Field(
        description="URI of the reference, whose centroids and distances measure all sets; null: those of the pool do"
    )
    criterion: str | None = Field(default=None, description="criterion of neuron coverage; null: there is none")
    sets: list[SetCoverage] = Field(
        description="the pool and the selection, or a set without a run; and the reference, if there is one"
    )


class Characterization(Document):
    """Coverage of data sets by the features of one or several models."""

    remedy: ClassVar[str] = "make it again with `opacc characterize`"

    format: Literal["opacc-characterization/1"] = format_field("opacc-characterization/1")
    radius: float = Field(gt=0, le=1, description="r: near the centroid is within this share of the largest distance")
    boundary: list[Share] = Field(
        min_length=2, max_length=2, description="[θ₁, θ₂]: near a boundary is a confidence in between"
    )
    seed: int = Field(ge=0, description="of the mixtures that shifts are measured by")
    models: list[ModelCoverage] = Field(description="one per run")
    made_with: str = Field(description="version of opacc_ray")


class GeneratedSet(Part):
    """One set of feature vectors, and the predictions of the model for them."""

    shares: str = Field(description="percent near centroids - percent near boundaries")
    count: int = Field(ge=1, description="number of vectors")
    accuracy: Share = Field(description="share predicted as their class, by a move that keeps the rules")
    predicted: Share = Field(description="share predicted as their class")
    violations: Share = Field(description="share whose move broke a property of classifiers")
    near_centroid: Share | None = Field(description="accuracy of those near a centroid; null: there are none")
    near_boundary: Share | None = Field(description="accuracy of those near a boundary; null: there are none")
    file: str = Field(description="URI of the vectors, .npz")


class Pictures(Part):
    """Decoded vectors, and the accuracy of the decoder."""

    file: str = Field(description="URI of the contact sheet, PNG: each vector above the nearest real image")
    images: int = Field(ge=1, description="images that the decoder learned from")
    error: float = Field(ge=0, description="root mean squared error of images it did not learn from; pixels in [0, 1]")
    baseline: float = Field(ge=0, description="the same if each is taken for the mean image")
    epochs: int = Field(ge=1, description="passes until the error on those stopped falling")
    distance: float = Field(ge=0, description="median distance of a decoded vector from its nearest real image, as RMS")


class Generation(Document):
    """Guided test sets of feature vectors."""

    remedy: ClassVar[str] = "make it again with `opacc generate`"

    format: Literal["opacc-generation/1"] = format_field("opacc-generation/1")
    run: str = Field(description="URI of the run whose model is tested")
    source: str = Field(description="URI of the data set that vectors start from")
    labels: Literal["label", "prediction"] = Field(description="how examples are assigned to classes")
    sources: int = Field(ge=1, description="examples that vectors start from")
    head: Literal["rest of the network", "last layer"] = Field(
        description="what judges vectors: the model's own layers after the cut; or, from stored features alone, its "
        "last layer, recovered from these"
    )
    layer: str | None = Field(default=None, description="layer whose output vectors replace; null: the stored one")
    shape: list[int] | None = Field(default=None, description="shape of a vector as the layer's map")
    agreement: Share = Field(description="share of examples for which it predicts what the run holds")
    radius: float = Field(gt=0, le=1, description="r: near the centroid is within this share of the largest distance")
    boundary: list[Share] = Field(min_length=2, max_length=2, description="[θ₁, θ₂]: confidence near a boundary")
    seed: int = Field(ge=0, description="of the draw")
    sets: list[GeneratedSet] = Field(description="the sets, in the requested order")
    pictures: Pictures | None = Field(description="null if none were requested")
    remarks: list[str] = Field(description="remarks on the sets")
