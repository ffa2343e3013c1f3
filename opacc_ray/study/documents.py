"""The document of a study: what results.json holds, and `opacc study --json` answers."""

from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.study.spec import StudySpec


class CaseFacts(Part):
    """A case: a pool whose outcomes are all known."""

    case: str = Field(description="its name")
    uri: str = Field(description="where it lies")
    sha256: str | None = Field(description="digest of the file")
    size: int = Field(ge=1, description="N, examples in the pool")
    accuracy: float = Field(ge=0, le=1, description="θ, the mean outcome of the pool")
    variance: float = Field(ge=0, description="S², the variance of the outcomes")
    outcome: str = Field(description="how outcomes were made")
    binary: bool = Field(description="whether every outcome is 0 or 1; else they are scores")
    features: list[str] = Field(description="features that the case has")
    shuffled: list[str] = Field(description="features that were put in random order, as a control")
    bound: dict[str, float] = Field(
        description="budget -> least E of an unbiased method that sees what neyman sees; empty for scores"
    )
    without_labels: dict[str, float] = Field(
        default={}, description="accuracy as the confidence alone has it, by the name of the guess; no estimate"
    )


class CellMeasures(Part):
    """One method at one budget on one case; standard deviations are those of a simple random sample (SRS)."""

    case: str = Field(description="name of the case")
    method: str = Field(description="name of the method in this study")
    design: str = Field(description="the method with its parameters, rounds and assistance")
    budget: int = Field(ge=1, description="labels allowed")
    repetitions: int = Field(ge=1, description="R, repetitions")
    mean: float = Field(description="mean of the estimates")
    standard_deviation: float | None = Field(description="standard deviation of the estimates; null if R = 1")
    bias: float = Field(description="mean error, in standard deviations of SRS")
    bias_standard_error: float | None = Field(description="its standard error; null where nothing varies")
    mse: float = Field(ge=0, description="mean squared error")
    efficiency: float = Field(ge=0, description="E, mean squared error over the variance of SRS")
    efficiency_interval: list[float] | None = Field(description="95 % interval of E; null where nothing varies")
    coverage: float = Field(ge=0, le=1, description="share of the intervals that hold the true accuracy")
    coverage_interval: list[float] | None = Field(description="95 % interval of it; null where nothing varies")
    width: float = Field(ge=0, description="mean width of the intervals")
    interval: str = Field(description="name of the interval")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    draws: float = Field(ge=0, description="mean number of draws; an example drawn twice counts twice")
    labels: float = Field(ge=0, description="mean number of distinct examples")
    failures: float | None = Field(description="mean number of mispredictions among them; null for scores")
    milliseconds: float = Field(ge=0, description="median time to choose, all rounds")


class NotPossible(Part):
    """A method that a case lacks features for."""

    case: str = Field(description="name of the case")
    method: str = Field(description="name of the method in this study")
    reason: str = Field(description="what is missing")


class StudyResults(Document):
    """Every method at every budget on every case."""

    format: Literal["opacc-study/1"] = Field(default="opacc-study/1", description="name and version of this form")
    command: str | None = Field(description="the command that ran the study, if it was one")
    created: str = Field(description="when it ended: ISO 8601, UTC")
    versions: dict[str, str] = Field(description="version of Python and of each package that matters")
    spec: StudySpec = Field(description="the study, with every default")
    cases: list[CaseFacts] = Field(description="the cases")
    methods: list[str] = Field(description="names of the methods, in the order of tables")
    cells: list[CellMeasures] = Field(description="what was measured")
    not_possible: list[NotPossible] = Field(description="methods that could not be run")
