"""Export a run's labelled examples as a case for a study: features, labels and outcomes in one .npz."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.labels.label_documents import ExportedLabels
from opacc_ray.labels.label_log import Score, measure_of, outcome_of, read_log
from opacc_ray.labels.label_rows import class_of
from opacc_ray.labels.labelled_rounds import join_labels, no_label, read_selections
from opacc_ray.lake.store_uris import write_object
from opacc_ray.pool import FEATURES
from opacc_ray.report.facts import changed_texts, number, percent
from opacc_ray.runs import feature_store
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run


def export_case(run: Run, file: str) -> ExportedLabels:
    """Write the labelled examples as a case for `opacc study`, an .npz file.

    The notes say how much of the pool they are. Raises SpecError if ``file`` has another suffix; LabelError if no
    example has a label.
    """
    if not file.lower().endswith(".npz"):
        raise SpecError(f"{file}: a case is an .npz file; give a name such as case.npz")
    selections, log = read_selections(run), read_log(run)
    joined = join_labels(run, selections, log.labels(), log.conflict)
    chosen = [(item.ids, item.index.tolist()) for item in selections]
    place = {id: index for ids, places in chosen for id, index in zip(ids, places, strict=True)}
    label = dict(sorted((place[id], text) for id, text in joined.label.items()))  # by place in the pool
    if not label:
        raise no_label(run)
    arrays: dict[str, Any] = _arrays(run, label, log.score)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    measure = measure_of(run.spec, log.score)
    notes = [f"{measure} {number(float(arrays['outcome'].mean()), measure)} of these examples"]
    size, unsure = selections[0].pool_size, len(joined.unsure)
    if len(label) < size:
        notes.append(
            f"they are {percent(len(label) / size)} of the pool, and no random sample, so a study of them does not "
            f'show the pool; {size - len(label) - unsure:,} have no label, {unsure} got "can\'t tell"'
        )
    notes += changed_texts(find_changed(run))
    return ExportedLabels(
        run=run.uri, tool="case", to=write_object(file, sink.getvalue()), examples=len(label), notes=notes
    )


def _arrays(run: Run, label: Mapping[int, str], score: Score) -> dict[str, NDArray[Any]]:
    """Return the columns of the case by name, (examples, ...) each, for the labels by place in the pool."""
    model = run.spec.model
    arrays = feature_store.read_rows(run, FEATURES, np.array(list(label), dtype=np.int64))
    said = zip(label.values(), arrays["prediction"].tolist(), strict=True)
    outcome = np.array([outcome_of(model, score, value, text) for text, value in said])
    if model.task in ("grade", "multilabel", "counts"):
        return arrays | {"outcome": outcome}
    if model.task == "regression":
        truth = {"target": np.array([float(text) for text in label.values()])}
    else:
        classes = [class_of(text, model.classes, id="") for text in label.values()]
        truth = {"label": np.array(classes, dtype=np.int64)}
    return arrays | truth | {"outcome": outcome}
