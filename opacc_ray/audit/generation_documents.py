"""What `opacc generate` makes: ``generation.json``."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part

Share = Annotated[float, Field(ge=0, le=1)]


class GeneratedSet(Part):
    """Feature vectors in one share and number, and what the classifier head makes of them."""

    shares: str = Field(description="percent near centroids - percent near boundaries")
    count: int = Field(ge=1, description="vectors")
    accuracy: Share = Field(description="share that the head predicts as their class, by a move that keeps the rules")
    predicted: Share = Field(description="share that the head predicts as their class")
    violations: Share = Field(description="share whose move broke a property of classifiers")
    near_centroid: Share | None = Field(description="accuracy of those near a centroid; null: there are none")
    near_boundary: Share | None = Field(description="accuracy of those near a boundary; null: there are none")
    file: str = Field(description="URI of the vectors, .npz")


class Pictures(Part):
    """Decoded vectors, and how far the decoder can be believed."""

    file: str = Field(description="URI of the contact sheet, PNG: each vector above the nearest real image")
    images: int = Field(ge=1, description="images that the decoder learned from")
    error: float = Field(ge=0, description="root mean squared error of images it did not learn from; pixels in [0, 1]")
    baseline: float = Field(ge=0, description="the same if each is taken for the mean image")
    epochs: int = Field(ge=1, description="passes until the error on those stopped falling")
    distance: float = Field(ge=0, description="median distance of a decoded vector from its nearest real image, as RMS")


class Generation(Document):
    """Guided test sets of feature vectors."""

    remedy: ClassVar[str] = "make it again with `opacc generate`"

    format: Literal["opacc-generation/1"] = Field(
        default="opacc-generation/1", description="name and version of this form"
    )
    run: str = Field(description="URI of the run whose model is tested")
    source: str = Field(description="URI of the data set that vectors start from")
    labels: Literal["label", "prediction"] = Field(description="what their class is, where they start from")
    sources: int = Field(ge=1, description="examples that vectors start from")
    head: Literal["last layer", "logistic regression"] = Field(
        description="the model's own last layer, recovered from its features; or a regression of its predictions"
    )
    agreement: Share = Field(description="share of the pool on which the head predicts what the model does")
    radius: float = Field(gt=0, le=1, description="r: near the centroid is within this share of the largest distance")
    boundary: list[Share] = Field(min_length=2, max_length=2, description="[θ₁, θ₂]: confidence near a boundary")
    seed: int = Field(ge=0, description="of the draw")
    sets: list[GeneratedSet] = Field(description="the sets, in the order that was asked for")
    pictures: Pictures | None = Field(description="null: none were asked for")
    remarks: list[str] = Field(description="what to know of them")
