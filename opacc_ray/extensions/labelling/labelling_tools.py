"""CVAT, SageMaker Ground Truth and FiftyOne: their tasks and labels, and labelled examples with their predictions.

**CVAT** is given images and label definitions for a task, and its export "CVAT for images 1.1" comes back. It does not
keep our ids. Labels come back with the name of the image: see `ids_of_names`. A class is a tag of an image, a number
the attribute `value` of the tag `value`, and "can't tell" a tag of that name. An image without a tag is not answered
yet. The export does not name the annotators. The XML is read without a document type: no entity is ever expanded.

**Ground Truth** is given an input manifest, and the output manifest of a job on images or texts comes back. The service
is closed to new customers, so only jobs that classify are supported. Each line is an object with our id, which comes
back unchanged, and `source-ref`, the image's S3 URI, which the job reads with its own role, or `source`, the
shown columns of a row as one text. Without our id, `source-ref` names the example. The label is the class name in the
metadata, never the integer: that numbers the categories of the job, not the classes of the model.

**FiftyOne** is where people look at failures. The folder is a dataset of the type `LegacyFiftyOneDataset`, in plain
JSON: `samples.json` and the images. Each sample has `prediction` with its confidence, `ground_truth`, and `weight`. The
accuracy is Σ weight · correct, because the examples have unequal inclusion probabilities: FiftyOne's unweighted counts
describe the sample, not the pool.

    dataset = fiftyone.Dataset.from_dir(FOLDER, dataset_type=fiftyone.types.LegacyFiftyOneDataset)
    dataset.evaluate_classifications("prediction", gt_field="ground_truth")
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.extensions.labelling.labelling_tasks import copy_examples, refuse_other_files
from opacc_ray.labels import formats
from opacc_ray.labels.formats import Context, Label, LabelFile, LabelFormat, Task
from opacc_ray.labels.label_actions import ExportedLabels
from opacc_ray.labels.labelled_rounds import LabelledRound, read_known, weights_of
from opacc_ray.labels.shown_examples import ExampleFiles, context_of, has_pictures
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run, read_rows

# -- CVAT --------------------------------------------------------------------------------------------------------------

UNSURE, VALUE = "can't tell", "value"


def _write_cvat(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``labels.json``, for the raw view of CVAT's label constructor; the images are copied next to it.

    Raises SpecError for what CVAT cannot show or ask: it has no task for texts and rows, and one tag for each picture.
    """
    refusal = None
    if not context.has_pictures:
        refusal = "CVAT has no task for texts and rows of a table, and this pool has no pictures"
    elif context.task in ("multilabel", "counts"):
        what = "several classes" if context.task == "multilabel" else "several numbers"
        refusal = f"a label of {what} is not read from CVAT"
    if refusal:
        raise SpecError(f"{refusal}: use --to label-studio or --to csv, or `opacc label`")
    if context.reads_numbers:
        number: dict[str, Any] = {"name": VALUE, "mutable": False, "input_type": "text", "values": [""]}
        tags = {VALUE: [number]}
    else:  # a class called "unsure" is answered by its index, which is unambiguous
        tags = {str(i) if formats.is_cant_tell(name) else name: [] for i, name in enumerate(context.classes or ())}
    labels = [{"name": name, "type": "tag", "attributes": own} for name, own in (tags | {UNSURE: []}).items()]
    return {"labels.json": _encode(labels)}


class _Images(ElementTree.TreeBuilder):
    """Elements of an export; refuses a document type, which may define entities."""

    def doctype(self, *declared: Any) -> None:
        raise LabelError("declares a document type, which CVAT never does")


def _parse_cvat(file: LabelFile) -> Iterator[Label]:
    """Yield one label for each image of an export."""
    try:
        tree = ElementTree.fromstring(file.data, ElementTree.XMLParser(target=_Images()))
    except (ElementTree.ParseError, LabelError) as error:
        what = error if isinstance(error, LabelError) else f"is not valid XML ({error})"
        raise LabelError(f"{file.name} {what}: export it again") from None
    images = tree.findall("image")
    if not images:
        raise LabelError(f"{file.name} has no image: export the task from CVAT as CVAT for images 1.1")
    return (_label_of_image(image, f"{file.name} image {number}") for number, image in enumerate(images, start=1))


def _label_of_image(image: ElementTree.Element, place: str) -> Label:
    id, tags = image.get("name", ""), image.findall("tag")
    if any(tag.get("source") == "auto" for tag in tags):
        raise LabelError(f"{place} has a tag of {formats.quoted(id)} that a model gave: import answers of people")
    labels = [tag.get("label", "") for tag in tags]
    answers = [
        tag.findtext(f"attribute[@name='{VALUE}']", label) if label == VALUE else label
        for tag, label in zip(tags, labels, strict=True)
    ]
    if len(answers) > 1:
        several = " and ".join(formats.quoted(text) for text in answers[:2])
        raise LabelError(f"{place}: {formats.quoted(id)} has {len(answers)} tags, {several}: leave one")
    return formats.label_of({"id": id, "label": "".join(answers)}, place)


CVAT = LabelFormat(lambda head: head.startswith("<"), _parse_cvat, _write_cvat, images=("copies",), pictures_alone=True)


# -- Ground Truth ------------------------------------------------------------------------------------------------------

ID, RUN = "opacc-id", "opacc-run"


def _write_ground_truth(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``input.manifest``; raises DataError for an image that is not in S3."""
    rows: list[dict[str, Any]] = []
    for task in tasks:
        if context.has_pictures and not (task.uri or "").startswith("s3://"):
            elsewhere = formats.quoted(task.id)
            raise DataError(f"Ground Truth reads images from S3; {elsewhere} is elsewhere: copy the pool to S3")
        text = "\n".join(f"{name}: {text}" for name, text in task.shown.items())
        source = {"source-ref": task.uri} if context.has_pictures else {"source": text}
        rows.append(source | {ID: task.id, RUN: task.run, "opacc-round": task.round})
    return {"input.manifest": formats.as_jsonl(rows)}


def _looks_like_ground_truth(head: str) -> bool:
    """Return whether a file is a manifest of Ground Truth, by its first line."""
    first = head.partition("\n")[0]
    return head.startswith("{") and ('"source-ref"' in first or f'"{ID}"' in first)


def _parse_ground_truth(file: LabelFile) -> Iterator[Label]:
    """Yield the labels of an output manifest; a line without a label is not answered yet."""
    for place, found in file.json_lines("import the output manifest as the job wrote it"):
        line = {ID: found.get("source-ref")} | found if isinstance(found, dict) else {ID: None}
        if not isinstance(line[ID], str):
            raise LabelError(f"{place} has no {ID}: start the job with the manifest that `opacc manifest` wrote")
        fields = {"id": str(line[ID]), "run": str(line.get(RUN, ""))}
        metadata = [value for key, value in line.items() if key.endswith("-metadata")]
        if len(metadata) > 1:
            raise LabelError(f"{place} has labels of {len(metadata)} jobs: import the output manifest of one job")
        yield formats.label_of(fields | (_fields_of_job(metadata[0], place) if metadata else {}), place)


def _fields_of_job(metadata: Any, place: str) -> dict[str, str]:
    content = metadata if isinstance(metadata, dict) else {}
    if content.get("human-annotated", "yes") != "yes":
        raise LabelError(f"{place} was labelled by a model, not by a person: labels must come from people")
    label = content.get("class-name", "" if "failure-reason" in content else None)
    if not isinstance(label, str):
        raise LabelError(f"{place} has no class-name in its metadata: import one of a classification job")
    return {"label": label, "labelled_at": str(content.get("creation-date", ""))}


GROUND_TRUTH = LabelFormat(
    _looks_like_ground_truth, _parse_ground_truth, _write_ground_truth, images=("addresses",), pictures_alone=True
)


# -- FiftyOne ----------------------------------------------------------------------------------------------------------


def export_to_fiftyone(run: Run, folder: str) -> ExportedLabels:
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


def _samples(
    run: Run, known: Sequence[LabelledRound], files: ExampleFiles, context: Context
) -> dict[str, dict[str, Any]]:
    """Return every labelled example once, by id, in the order of rounds."""
    weights = weights_of(known)
    found: dict[str, dict[str, Any]] = {}
    for item in known:
        features = read_rows(run, ["confidence"], item.known.index)
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
