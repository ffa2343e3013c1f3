"""Signs of a wrong model: before extraction, in its predictions, and in the labels.

    trial          some examples are tried before extraction (`check`, `run`)
    predictions    of the whole pool, after extraction (`run`)
    labels         all labels so far (`next`, `estimate`, `status`, `report`)

The first two are stored in ``sanity.json``. :mod:`opacc_ray.samplers.plausibility` decides what deserves a warning.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, LabelError, SpecError, counted
from opacc_ray.estimation.sample import Rounds
from opacc_ray.extract.trial import Trial, try_examples, try_inputs, try_rows
from opacc_ray.extract.user_code import call
from opacc_ray.labels.formats import is_cant_tell, warnings_about
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.lake.examples import Plan
from opacc_ray.runs.run import Run, read_sample
from opacc_ray.runs.run_documents import ModelSanity, Predicted, Spread
from opacc_ray.samplers import plausibility
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec, PoolSpec, Spec

SANITY = "sanity.json"

MOST_NUMBERS = 100_000
"""Most classes without names that warnings count one by one; labels may be ids that are far larger."""


MOST_KINDS = 5
"""Most kinds of examples that a trial names."""


class TriedModel(NamedTuple):
    """Result of a trial."""

    found: str  # one sentence
    warnings: list[str]
    of_some: list[str]  # warnings of these examples alone: a run has the numbers of the whole pool
    pace: float | None = None  # seconds of an example in the model, if one runs


def check_model(spec: Spec, plan: Plan, compared: Plan | None = None) -> TriedModel:
    """Try some examples; raises SpecError, DataError or StorageError as extraction would.

    ``compared`` is the plan of the reference, whose inputs are compared with those of the pool.
    """
    if spec.pool.holds_features:
        return _check_rows(spec, plan)
    seconds = spec.extract.shard_timeout
    tried = call(try_examples, spec, plan, seconds=seconds)
    model, names, output = spec.model, spec.model.classes, tried.columns["output"]
    if names and model.task == "classification" and len(names) != output.shape[1]:
        raise SpecError(
            f"model.classes names {len(names)} classes and the model has {output.shape[1]} outputs; name each, in order"
        )
    warnings = [
        *call(_random_parts, model, seconds=seconds),
        *_random_results(tried),
        *plausibility.about_outputs(output, model.task, model.output),
        *_mixed_types(tried, spec),
    ]
    if compared is not None and spec.reference is not None:
        inputs = call(try_inputs, spec, spec.reference, compared, seconds=seconds)
        warnings += plausibility.about_inputs(tried.inputs, inputs)
    of_some = [*about_orientation(spec.pool, tried.turned, tried.num), *_doubtful_class(tried, model)]
    return TriedModel(_described(tried, spec), warnings, of_some, tried.pace)


def _check_rows(spec: Spec, plan: Plan) -> TriedModel:
    """Try the first rows of a pool of features."""
    rows, model = try_rows(spec, plan), spec.model
    sizes = ", ".join(f"{name} {own.shape[1]}" if own.ndim > 1 else name for name, own in rows.columns.items())
    found = f"example {rows.ids[0]!r} has {sizes}; no model is run"
    if model.classes and model.has_classes and int(rows.columns["prediction"].max()) >= len(model.classes):
        return TriedModel(found, [], [])  # extraction checks the whole pool
    predicted = predictions_of(model, rows.columns)
    output = rows.columns.get("output")
    warnings = [] if output is None else plausibility.about_outputs(output, model.task, model.output)
    said = f"; of {counted(predicted.examples, 'example')} predicted: {predicted}" if str(predicted) else ""
    return TriedModel(f"{found}{said}", warnings, [])


def _described(tried: Trial, spec: Spec) -> str:
    first, columns, model = tried.first, tried.columns, spec.model
    predicted = predictions_of(model, columns)
    left_out = f"; {counted(tried.excluded, 'example')} would be left out" if tried.excluded else ""
    note = f"; {tried.note}" if tried.note else ""
    unprepared = ""
    if not spec.transform:
        scales = sorted({np.iinfo(kind.dtype).max for kind in tried.kinds if kind.dtype in ("uint8", "uint16")})
        divided = f"divided by {' or '.join(map(str, scales))}" if scales else "numbers as they are"
        unprepared = f", no transform: {divided}"
    return (
        f"example {first.id!r} {first.array.shape} {first.array.dtype} becomes {tried.input}{unprepared}; read "
        f"{_kinds(tried)}; {tried.hidden} hidden neurons, {counted(columns['output'].shape[1], 'output')}; of "
        f"{counted(predicted.examples, 'example')} predicted: {predicted}{left_out}{note}"
    )


def _kinds(tried: Trial) -> str:
    """Return the kinds of examples that were read, the most frequent first."""
    kinds = [f"{num} × {kind}" for kind, num in tried.kinds.most_common()]
    more = f" and {len(kinds) - MOST_KINDS} more kinds" if len(kinds) > MOST_KINDS else ""
    return ", ".join(kinds[:MOST_KINDS]) + more


def _mixed_types(tried: Trial, spec: Spec) -> list[str]:
    """Return a warning if a transform is given numbers of several scales."""
    types: Counter[str] = Counter()
    for kind, num in tried.kinds.items():
        types[kind.dtype] += num
    if spec.transform is None or len(types) < 2:
        return []
    counts = " and ".join(f"{num} as {name}" for name, num in types.most_common())
    return [f"the transform is given {counts}, and dividing all by 255 misfeeds some; let it scale each by its type"]


def _doubtful_class(tried: Trial, model: ModelSpec) -> list[str]:
    """Return a warning if nearly all examples are predicted as one class, and not all outputs are equal."""
    if model.task != "classification" or np.all(tried.columns["output"] == tried.columns["output"][0]):
        return []
    prediction, confidence = tried.columns["prediction"], tried.columns["confidence"]
    return plausibility.about_one_class(prediction, confidence, tried.columns["output"].shape[1], model.name_of)


def about_orientation(pool: PoolSpec, turned: int, num: int) -> list[str]:
    """Return a warning if the orientation of some of ``num`` images is ignored."""
    if not turned or pool.orientation == "apply":
        return []
    return [
        f"{turned:,} of {counted(num, 'image')} state an EXIF orientation, and the model is given them as they are "
        "stored, not upright; if its service turns them, as OpenCV does, set pool.orientation: apply"
    ]


def _random_parts(model: ModelSpec) -> list[str]:
    """Return a warning if the factory returns a different model each time, because there are no weights."""
    if model.factory is None or model.weights is not None:
        return []
    from opacc_ray.extract.torch_model import random_parameters

    names = random_parameters(model)
    if not names:
        return []
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return [
        f"model.weights is not given, and building the model twice gives different parameters ({', '.join(names[:2])}"
        f"{more}). They are random, so a random network would be audited; give model.weights"
    ]


def _random_results(tried: Trial) -> list[str]:
    """Return a warning if the same examples gave two results."""
    if tried.random is None:
        return []
    what, remedy = {
        "transform": (
            "transform gives another input for the same example",
            "it augments at random; give that of tests",
        ),
        "model": ("model gives another output for the same input", "dropout is on, or it draws numbers; call eval()"),
    }[tried.random]
    return [f"The {what}: {remedy}. As it is, one random draw is audited, and no second extraction agrees with it"]


def predictions_of(model: ModelSpec, columns: Mapping[str, NDArray[Any]]) -> Predicted:
    """Summarize the predictions for some examples."""
    prediction = columns["prediction"]
    counts = Counter(prediction.tolist()) if model.task == "classification" else None
    values = prediction if model.task == "regression" else columns.get("confidence")
    return _predicted(model, len(prediction), counts, values)


def _predicted(model: ModelSpec, num: int, counts: Mapping[int, int] | None, values: NDArray[Any] | None) -> Predicted:
    """Summarize predictions, from the examples of each class, and the confidences or the values of a regression."""
    spread = None
    if values is not None:
        spread = Spread(low=float(values.min()), median=float(np.median(values)), high=float(values.max()))
    most_first = None if counts is None else sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return Predicted(
        examples=num,
        classes=None if most_first is None else {model.name_of(code): num for code, num in most_first},
        confidence=None if model.task == "regression" else spread,
        values=spread if model.task == "regression" else None,
    )


def note_trial(run: Run, warnings: Sequence[str]) -> None:
    """Store the warnings of a trial."""
    run.store.write(SANITY, ModelSanity(trial=list(warnings), predicted=None, warnings=[]).to_bytes())


def note_predictions(run: Run) -> None:
    """Store a summary of the predictions for the pool with its warnings, unless that is done."""
    before = _noticed(run)
    if before is not None and before.predicted is not None:
        return
    model, index = run.spec.model, run.complete_features().index
    is_regression = model.task == "regression"
    name = "prediction" if is_regression else "confidence"
    values = read_sample(run, name) if is_regression or name in index.features else None
    predicted = _predicted(model, index.num_examples, None if is_regression else index.predicted, values)
    spread = predicted.confidence or predicted.values
    span = None if spread is None else plausibility.Range(spread.low, spread.median, spread.high)
    warnings = plausibility.about_predictions(predicted.examples, predicted.classes, span, run.num_classes)
    warnings += about_orientation(run.spec.pool, index.turned, predicted.examples)
    unsure = next((name for name in run.spec.model.classes or () if is_cant_tell(name)), None)
    if unsure is not None:
        number = (run.spec.model.classes or []).index(unsure)
        warnings.append(f"a label {unsure!r} means can't tell, not that class: label the class {number}, or rename it")
    warnings += warnings_about(model.label_names)
    sanity = ModelSanity(trial=before.trial if before else [], predicted=predicted, warnings=warnings)
    run.store.write(SANITY, sanity.to_bytes())


def _noticed(run: Run) -> ModelSanity | None:
    with suppress(DataError):  # `opacc verify` reports it, and no number depends on it
        return run.read_document(ModelSanity, SANITY)
    return None


def predicted_by(run: Run) -> Predicted | None:
    """Return the summary of the predictions for the pool; None if it is not stored."""
    noticed = _noticed(run)
    return noticed.predicted if noticed else None


def warnings_of(run: Run, rounds: Sequence[LabelledRound]) -> list[str]:
    """Return all warnings about a run's model: from trial, predictions, and the labels of some rounds."""
    noticed = _noticed(run)
    before = [*noticed.trial, *noticed.warnings] if noticed else []
    return list(dict.fromkeys([*before, *_about_labels(run.spec.model, run.num_classes, having_labels(rounds))]))


def warnings_now(run: Run) -> list[str]:
    """Return all warnings with all labels so far, unless the labels are in conflict."""
    try:
        return warnings_of(run, read_rounds(run, with_lost=True))
    except LabelError:
        return warnings_of(run, ())


def _about_labels(model: ModelSpec, num_classes: int | None, known: Sequence[LabelledRound]) -> list[str]:
    if not known:
        return []
    try:
        of_labels = Rounds([item.known for item in known]).weights  # (n,)
    except LabelError:  # they allow no estimate
        of_labels = np.ones(sum(len(item.outcome) for item in known))
    ids = [name for item in known for name in item.known.ids]
    _, first, place = np.unique(ids, return_index=True, return_inverse=True)
    weights = np.bincount(place, weights=np.maximum(of_labels, 0))  # a repeated example counts once
    texts = {name: [text for item in known for text in getattr(item, name)] for name in ("predicted", "truth")}
    predicted, truth = ([texts[name][row] for row in first] for name in ("predicted", "truth"))
    if model.task in ("grade", "multilabel", "counts"):
        return []
    if model.task == "regression":
        outcome = np.concatenate([item.outcome for item in known])[first]
        said, so = (np.array(own, dtype=np.float64) for own in (predicted, truth))
        return plausibility.about_values(said, so, weights.astype(np.float64), outcome)
    names = model.classes or _numbers_of([*predicted, *truth], num_classes or 0)
    code = {name: number for number, name in enumerate(names)}
    said_class, true_class = (np.array([code[text] for text in own], dtype=np.int64) for own in (predicted, truth))
    foreseen = np.concatenate([_foreseen(item.known) for item in known])[first]
    return plausibility.about_classes(said_class, true_class, weights.astype(np.float64), names, foreseen)


def _foreseen(selection: Selection) -> NDArray[np.float64]:
    """Return the failure probabilities (n,) that were predicted before the labels of a round, NaN without any."""
    prediction = selection.design.prediction
    if prediction is None or plausibility.FORESEEN_FROM not in selection.facts:
        return np.full(len(selection), np.nan)
    return prediction.labelled


def _numbers_of(texts: Sequence[str], num_classes: int) -> list[str]:
    """Return the names of classes without names: all up to the largest, or those that occur if that is far beyond."""
    size = max([num_classes, *(int(text) + 1 for text in texts)])
    return [str(number) for number in (range(size) if size <= MOST_NUMBERS else sorted(set(map(int, texts))))]
