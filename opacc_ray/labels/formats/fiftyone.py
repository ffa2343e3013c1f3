"""FiftyOne: labelled examples with what the model said of them, to look at failures and where they lie.

The folder is a dataset of the type `LegacyFiftyOneDataset`, which is plain JSON: `samples.json` beside the images. Each
sample has `prediction` with its confidence, `ground_truth`, and `weight`: the accuracy is Σ weight · correct, because
the examples were not drawn alike. Counts that FiftyOne makes without weights are those of the sample, not of the pool.

    dataset = fiftyone.Dataset.from_dir(FOLDER, dataset_type=fiftyone.types.LegacyFiftyOneDataset)
    dataset.evaluate_classifications("prediction", gt_field="ground_truth")
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from opacc_ray.labels.rows import Context


class LabelledExample(NamedTuple):
    """An example with its label and the model's answer, in the same words."""

    id: str
    filepath: str  # of its image, relative to the dataset
    round: int
    prediction: str
    label: str
    outcome: float  # 1 correct, 0 not; of a regression its score
    weight: float
    confidence: float | None


def write(examples: Sequence[LabelledExample], context: Context) -> dict[str, bytes]:
    """Return ``samples.json`` and ``metadata.json``."""
    samples = [_sample(example, context) for example in examples]
    metadata = {"media_type": "image", "classes": {"ground_truth": list(context.classes or ())}}
    return {"samples.json": _encode({"samples": samples}), "metadata.json": _encode(metadata)}


def _sample(example: LabelledExample, context: Context) -> dict[str, Any]:
    return {
        "filepath": example.filepath,
        "tags": [f"round-{example.round}"],
        "opacc_id": example.id,
        "ground_truth": _label(example.label, None, context),
        "prediction": _label(example.prediction, example.confidence, context),
        "outcome": example.outcome,
        "weight": example.weight,
    }


def _label(text: str, confidence: float | None, context: Context) -> dict[str, Any]:
    known = {} if confidence is None else {"confidence": confidence}
    if context.task == "regression":
        return {"_cls": "Regression", "tags": [], "value": float(text)} | known
    return {"_cls": "Classification", "tags": [], "label": text} | known


def _encode(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
