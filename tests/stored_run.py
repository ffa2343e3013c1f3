"""A run in storage whose features are given: what the model says of each example is known, and no cluster is needed."""

from collections.abc import Iterable

import numpy as np

from opacc_ray.audit.stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.inference import decided_by_output
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.lake.examples import Plan
from opacc_ray.runs.run import Run, header_of
from opacc_ray.spec import ModelSpec, Spec


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


def settled(prediction: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Confidences (N,) that follow exactly from their logits, which are rounded to float32."""
    for _ in range(9):
        model = ModelSpec.model_construct(output="logits", task="classification")
        confidence = decided_by_output(logits(prediction, confidence), model)["confidence"]
    return confidence
