"""The labelled examples of a run with what the model said of them, for tools in which people look at failures."""

from collections.abc import Sequence

from opacc_ray.estimators.linear import linear_estimator
from opacc_ray.labels.documents import ExportedLabels
from opacc_ray.labels.example_files import ExampleFiles
from opacc_ray.labels.formats import fiftyone
from opacc_ray.labels.formats.fiftyone import LabelledExample
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, no_label, read_rounds
from opacc_ray.labels.tasks import context_of, copy_examples, refuse_other_files
from opacc_ray.lake.storage import open_store
from opacc_ray.lake.store import write_files
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run


def export_labels(run: Run, tool: str, folder: str) -> ExportedLabels:
    """Write all labelled examples with copies of their images; an example that was drawn twice has both weights.

    Raises
    ------
    LabelError
        No example has a label yet, labels are in conflict, or the folder holds another export.
    """
    rounds = read_rounds(run)
    known = having_labels(rounds)
    if not known:
        raise no_label(run, rounds)
    store, files = open_store(folder), ExampleFiles(run, run.rounds())
    examples = [item._replace(filepath=f"data/{files.name_of_copy(item.id)}") for item in _examples(run, known)]
    contents = fiftyone.write(examples, context_of(run))
    refuse_other_files(store, contents)
    copy_examples(files, [item.id for item in examples], store, "data/")
    write_files(store, contents)
    return ExportedLabels(run=run.uri, tool=tool, folder=store.uri, examples=len(examples))


def _examples(run: Run, known: Sequence[LabelledRound]) -> list[LabelledExample]:
    """Every labelled example once, in the order of rounds."""
    weights = iter(linear_estimator([item.known for item in known]).weights.tolist())
    found: dict[str, LabelledExample] = {}
    for item in known:
        features = feature_store.read_rows(run, ["confidence"], item.known.index)
        confidence = features["confidence"].tolist() if "confidence" in features else [None] * len(item.truth)
        rows = zip(item.known.ids, item.predicted, item.truth, item.outcome.tolist(), confidence, strict=True)
        for id, predicted, truth, outcome, sure in rows:
            before = found[id].weight if id in found else 0.0
            weight = before + next(weights)
            found[id] = LabelledExample(id, "", item.number, predicted, truth, outcome, weight, sure)
    return list(found.values())
