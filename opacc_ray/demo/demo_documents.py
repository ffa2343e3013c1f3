"""What the demo answers."""

from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document, format_field
from opacc_ray.runs.estimate_documents import AccuracyEstimate, StatedEstimate


class DemoResult(Document):
    """Estimates of three methods with the same number of labels, and the true accuracy."""

    format: Literal["opacc-demo/1"] = format_field("opacc-demo/1")
    run: str = Field(description="URI of the run")
    report: str = Field(description="path of the report, an HTML page")
    folder: str = Field(description="folder with all files of the demo")
    seconds: float = Field(ge=0, description="duration")
    true_accuracy: float = Field(ge=0, le=1, description="accuracy on the whole pool, unknown in practice")
    agreed: int | None = Field(
        default=None, description="labels of the user that are true; null: the user was not asked to label"
    )
    estimate: AccuracyEstimate = Field(description="by neyman, in the rounds of the run")
    ces: StatedEstimate = Field(description="by CES, from the same features")
    srs: StatedEstimate = Field(description="by a simple random sample, from the same features")
