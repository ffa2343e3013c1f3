"""What a model predicts, and what was noticed of it before any label: ``sanity.json`` of a run."""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Part, SealedDocument

_NAMED = 10
"""Predicted classes that are named; the others are counted."""


class Spread(Part):
    """Where some numbers lie."""

    low: float = Field(description="the lowest")
    median: float = Field(description="the one in the middle")
    high: float = Field(description="the highest")


class Predicted(Part):
    """What the model predicts of some examples."""

    examples: int = Field(ge=0, description="how many")
    classes: dict[str, int] | None = Field(
        description="predicted class -> examples, most first; null: a regression, or not known"
    )
    confidence: Spread | None = Field(description="of the confidences; null: the features have none")
    values: Spread | None = Field(description="of the values of a regression; null: a classification")

    def __str__(self) -> str:
        found = []
        if self.classes is not None:
            rest = len(self.classes) - _NAMED
            more = f" and {rest} more class{'es' * (rest > 1)}" if rest > 0 else ""
            found.append(", ".join(f"{name} {num}" for name, num in [*self.classes.items()][:_NAMED]) + more)
        if self.confidence:
            low, middle, high = self.confidence.low, self.confidence.median, self.confidence.high
            found.append(f"confidence {low:.2f} to {high:.2f}, median {middle:.2f}")
        if self.values:
            found.append(f"{self.values.low:.4g} to {self.values.high:.4g}, median {self.values.median:.4g}")
        return "; ".join(found)


class ModelSanity(SealedDocument):
    """Checks of the model's predictions before any label, to find a wrong model."""

    remedy: ClassVar[str] = "delete it and run the spec again"

    format: Literal["opacc-sanity/1"] = Field(default="opacc-sanity/1", description="name and version of this form")
    trial: list[str] = Field(description="warnings of the trial of some examples before extraction")
    predicted: Predicted | None = Field(description="what the model predicts of the pool; null until it is extracted")
    warnings: list[str] = Field(description="warnings about these predictions")
