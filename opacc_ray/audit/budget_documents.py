"""The answer of `opacc budget`: how many labels, and how narrow the interval is with fewer or more."""

from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document, Part


class WidthPoint(Part):
    """How narrow the interval is with so many labels."""

    labels: int = Field(ge=1, description="labels in all")
    half_width: float = Field(ge=0, description="half the width of the interval")
    srs_half_width: float = Field(ge=0, description="that of a simple random sample of as many labels")
    seen: bool = Field(description="whether the labels are there; else it is forecast")


class WidthCourse(Part):
    """Half-widths against labels: those of the rounds so far, then forecast ones."""

    level: float = Field(gt=0, lt=1, description="confidence level of the intervals")
    labels: int = Field(ge=0, description="labels that the forecast rests on, of whole rounds; 0: the model's own word")
    points: list[WidthPoint] = Field(description="by numbers of labels")


class LabelBudget(Document):
    """How many labels an interval of ±W takes: before any label by the model's own word, then by the labels so far."""

    format: Literal["opacc-budget/1"] = Field(default="opacc-budget/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    half_width: float = Field(gt=0, description="the goal: half the width of the interval")
    level: float = Field(gt=0, lt=1, description="confidence level of that interval")
    labels: int = Field(ge=0, description="labels that the forecast rests on, of whole rounds; 0: the model's own word")
    accuracy: float = Field(description="accuracy foreseen, or estimated by the labels so far and cut to its interval")
    reached: bool = Field(description="whether the interval is as narrow already")
    total_labels: int = Field(ge=1, description="labels in all, as forecast")
    worthless_labels: int | None = Field(
        description="labels in all if the model's word says nothing of where failures are; null once there are labels"
    )
    most_labels: int | None = Field(description="labels in all whatever is true; null once there are labels")
    srs_labels: int = Field(ge=1, description="labels that a simple random sample takes in all")
    sizes: list[int] = Field(description="labels of the next rounds, if all goes as forecast; empty if it is reached")
    advice: str | None = Field(description="one sentence if the goal is not to be had at a sensible price")
    method: str | None = Field(default=None, description="the method asked for; null if none was")
    method_labels: int | None = Field(
        default=None, description="labels that it takes in one round, from the beginning; null if none was asked for"
    )
    course: WidthCourse | None = Field(default=None, description="half-widths against labels")
    picture: str | None = Field(default=None, description="URI of the picture; null: none was asked for")
