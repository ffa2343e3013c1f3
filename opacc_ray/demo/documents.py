"""What the demo answers."""

from typing import Literal

from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.runs.estimate_documents import AccuracyEstimate, StatedEstimate


class DemoResult(Document):
    """Three methods with as many labels each, beside the truth."""

    format: Literal["opacc-demo/1"] = Field(default="opacc-demo/1", description="name and version of this form")
    run: str = Field(description="URI of the run; its server ended with the demo")
    folder: str = Field(description="where everything is kept")
    seconds: float = Field(ge=0, description="how long it took")
    true_accuracy: float = Field(ge=0, le=1, description="accuracy on the whole pool, which nobody knows in the field")
    estimate: AccuracyEstimate = Field(description="by neyman, in two rounds of the run")
    ces: StatedEstimate = Field(description="by CES, from the same features")
    srs: StatedEstimate = Field(description="by a simple random sample, from the same features")
