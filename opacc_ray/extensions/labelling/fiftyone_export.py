"""Export of labelled examples with their predictions to FiftyOne, where people look at failures.

The folder is a dataset of the type `LegacyFiftyOneDataset`, which is plain JSON: `samples.json` and the images. Each
sample has `prediction` with its confidence, `ground_truth`, and `weight`. The accuracy is Σ weight · correct, because
the examples have unequal inclusion probabilities: FiftyOne's unweighted counts describe the sample, not the pool.

    dataset = fiftyone.Dataset.from_dir(FOLDER, dataset_type=fiftyone.types.LegacyFiftyOneDataset)
    dataset.evaluate_classifications("prediction", gt_field="ground_truth")
"""

import json
from collections.abc import Sequence
from typing import Any

from opacc_ray.errors import LabelError
from opacc_ray.extensions.labelling.labelling_tasks import copy_examples, refuse_other_files
from opacc_ray.labels.label_actions import ExportedLabels
from opacc_ray.labels.label_rows import Context
from opacc_ray.labels.labelled_rounds import LabelledRound, read_known, weights_of
from opacc_ray.labels.shown_examples import ExampleFiles, context_of, has_pictures
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run

Sample = dict[str, Any]


def export_labels(run: Run, folder: str) -> ExportedLabels:
    """Write all labelled examples with copies of their images; the weights of repeated draws are added up.

    Raises LabelError if no example has a label yet, if examples are no pictures or labels in conflict, or if the folder
    has another export.
    """
    known = read_known(run)
    store, files, context = open_store(folder), ExampleFiles(run, run.rounds()), context_of(run)
    if not has_pictures(run):
        raise LabelError(f"the examples of {run.uri} are no pictures, which fiftyone shows: nothing can be exported")
    samples = _samples(run, known, files, context)
    metadata = {"media_type": "image", "classes": {"ground_truth": list(context.classes or ())}}
    contents = {"samples.json": _encode({"samples": list(samples.values())}), "metadata.json": _encode(metadata)}
    refuse_other_files(store, contents)
    copy_examples(files, samples.keys(), store, "data/")
    write_files(store, contents)
    return ExportedLabels(run=run.uri, tool="fiftyone", to=store.uri, examples=len(samples))


def _samples(run: Run, known: Sequence[LabelledRound], files: ExampleFiles, context: Context) -> dict[str, Sample]:
    """Return every labelled example once, by id, in the order of rounds."""
    weights = weights_of(known)
    found: dict[str, Sample] = {}
    for item in known:
        features = feature_store.read_rows(run, ["confidence"], item.known.index)
        confidences = features["confidence"].tolist() if "confidence" in features else [None] * len(item.truth)
        rows = zip(item.known.ids, item.predicted, item.truth, item.outcome.tolist(), confidences, strict=True)
        for id, predicted, truth, outcome, confidence in rows:
            found[id] = {
                "filepath": f"data/{files.name_of_copy(id)}",
                "tags": [f"round-{item.number}"],
                "opacc_id": id,
                "ground_truth": _label(truth, None, context),
                "prediction": _label(predicted, confidence, context),
                "outcome": outcome,  # 1 correct, 0 not; in a regression the score
                "weight": weights[id],
            }
    return found


def _label(text: str, confidence: float | None, context: Context) -> dict[str, Any]:
    known = {} if confidence is None else {"confidence": confidence}
    if context.reads_numbers:
        return {"_cls": "Regression", "tags": [], "value": float(text)} | known
    return {"_cls": "Classification", "tags": [], "label": text} | known


def _encode(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False).encode() + b"\n"
