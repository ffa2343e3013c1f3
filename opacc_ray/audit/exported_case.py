"""Export a run's labelled examples as a case for a study: features, labels and outcomes in one .npz."""

import io
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Document, format_field
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.label_log import Score, measure_of, outcome_of, read_log
from opacc_ray.labels.label_rows import class_of
from opacc_ray.labels.labelled_rounds import join_labels, no_label, read_tracks
from opacc_ray.lake.store_uris import open_store, split
from opacc_ray.pool import FEATURES
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import ChangedObjects
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run


class ExportedCase(Document):
    """Report of a written case."""

    format: Literal["opacc-case/1"] = format_field("opacc-case/1")
    run: str = Field(description="URI of the run")
    file: str = Field(description="URI of the case")
    examples: int = Field(ge=1, description="examples in it, in the order of the pool")
    pool_size: int = Field(ge=1, description="examples in the pool, without those that could not be read")
    unsure: int = Field(ge=0, description='examples that are left out because all answers are "can\'t tell"')
    unlabelled: int = Field(ge=0, description="examples that are left out because they have no answer")
    columns: list[str] = Field(description="names of the arrays, each with one entry per example")
    measure: str = Field(description="name of the mean outcome: accuracy, or the score of a regression")
    value: float = Field(ge=0, le=1, description="the exact mean outcome of these examples")
    objects: ChangedObjects = Field(description="objects of these examples that changed after extraction")


def export_case(run: Run, file: str, *, partial: bool = False) -> ExportedCase:
    """Write the labelled examples of all tracks as a case for `opacc study`, an .npz file.

    ``partial`` allows examples of the pool without a label. Raises SpecError if ``file`` has another suffix; LabelError
    if no example has a label, or some have none and ``partial`` is not set.
    """
    if not file.lower().endswith(".npz"):
        raise SpecError(f"--case {file}: a case is an .npz file; give a name such as case.npz")
    folder, name = split(file)
    tracks = read_tracks(run)
    log = read_log(tracks[0].run)
    joined = join_labels(tracks, log.labels(), log.conflict)
    chosen = [(item.ids, item.index.tolist()) for track in tracks for item in track.selections]
    place = {id: index for ids, places in chosen for id, index in zip(ids, places, strict=True)}
    label = dict(sorted((place[id], text) for id, text in joined.label.items()))  # by place in the pool
    size, unsure = tracks[0].selections[0].pool_size, len(joined.unsure)
    if not label:
        raise no_label(run)
    if len(label) < size and not partial:
        raise LabelError(
            f"{size - len(label)} of {size} examples of {run.uri} have no label, and a case needs all; label "
            f"them, or give --partial for the {len(label)} that have one"
        )
    arrays: dict[str, Any] = _arrays(run, label, log.score)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    store = open_store(folder)
    store.write(name, sink.getvalue())
    return ExportedCase(
        run=run.uri,
        file=store.uri_of(name),
        examples=len(label),
        pool_size=size,
        unsure=unsure,
        unlabelled=size - len(label) - unsure,
        columns=list(arrays),
        measure=measure_of(run.spec, log.score),
        value=float(arrays["outcome"].mean()),
        objects=find_changed([track.run for track in tracks]),
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
