"""A run in storage whose features are given: what the model says of each example is known, and no cluster is needed."""

from collections.abc import Iterable

import numpy as np

from opacc_ray.audit.extraction_stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.inference import decided_by_output
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.lake.examples import Plan
from opacc_ray.runs.run import Run, header_of
from opacc_ray.spec import ModelSpec, Spec

LOGITS = ModelSpec.model_construct(output="logits", task="classification")


def store_run(uri: str, spec: Spec, plan: Plan, shards: Iterable[FeatureShard]) -> Run:
    """Create a run and store the features of each shard of its plan, and their index."""
    run = Run.create(uri, header_of(spec, plan, None))
    for shard, features in zip(plan.shards, shards, strict=True):
        run.features.write(shard.file, encode_shard(features))
    index_features(Extraction(run.spec, run.spec.pool, run.spec.features(), run.features), plan)
    return run


def logits(prediction: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Outputs (N, 3) with these predictions (N,) and, but for rounding, confidences (N,) above a third."""
    share = np.where(np.arange(3) == prediction[:, None], confidence[:, None], (1 - confidence[:, None]) / 2)
    return np.log(share).astype(np.float32)


def answers(prediction: np.ndarray, confidence: np.ndarray, model: ModelSpec = LOGITS) -> dict[str, np.ndarray]:
    """Output, and the prediction and confidence that follow from it."""
    output = logits(prediction, confidence)
    return {"output": output, **decided_by_output(output, model)}


def classifier(rng: np.random.Generator, num: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truths, confidences and predictions (num,) of three classes, right as often as it is confident.

    Confidences follow exactly from their logits, which are rounded to float32.
    """
    truth, confidence = rng.integers(0, 3, num), rng.uniform(0.4, 1, num)
    prediction = np.where(rng.random(num) < confidence, truth, (truth + 1) % 3)
    for _ in range(9):
        confidence = answers(prediction, confidence)["confidence"]
    return truth, confidence, prediction
