"""Run a model on a regression suite, in this process, and report what changed.

The model is a spec, a file of weights for the model of the suite, a run, or a table of predictions by id. Without Ray:
a suite is small, and its inputs are stored with it.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.audit.suites import (
    DOCUMENT,
    OpenSuite,
    PoolAccuracy,
    SuiteCoverage,
    SuiteExample,
    bits_of,
    count,
    cover,
    is_right,
    model_of,
    read_suite,
)
from opacc_ray.documents import Document, Part, format_field
from opacc_ray.errors import DataError, LabelError, SpecError, counted
from opacc_ray.extract.inference import run_here
from opacc_ray.labels.joining import reading_by
from opacc_ray.lake.examples import Example
from opacc_ray.lake.formats.features import read_file
from opacc_ray.lake.store_uris import open_store
from opacc_ray.neurons.criteria import Criterion
from opacc_ray.pool import LAYERS
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.spec import ModelSpec, Spec, load_spec
from opacc_ray.spec.predictions_table import is_table, read_predictions

WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
"""Suffixes of files of weights."""

LEFT = 0.05
"""Share of requirements by which the coverage of a suite may fall before a warning reports it."""

Layers = dict[str, NDArray[np.float32]]


class Changed(Part):
    """An example of a suite whose answer is right now and was wrong, or the reverse."""

    id: str = Field(description="its id")
    label: str = Field(description="its label")
    before: str = Field(description="answer that the suite compares with")
    now: str = Field(description="answer of the model")


class Regression(Document):
    """Result of a model on a regression suite."""

    format: Literal["opacc-regression/1"] = format_field("opacc-regression/1")
    suite: str = Field(description="URI of the suite")
    model: str = Field(description="spec, weights, run or table of the answers")
    passed: bool = Field(description="whether no more examples than allowed are wrong that were right")
    allowed: int = Field(ge=0, description="examples that may be wrong although they were right")
    examples: int = Field(ge=1, description="examples of the suite")
    right: int = Field(ge=0, description="examples that the model gets right")
    right_before: int = Field(ge=0, description="examples that the model before got right")
    newly_wrong: list[Changed] = Field(description="examples that were right and are wrong")
    newly_right: list[Changed] = Field(description="examples that were wrong and are right")
    otherwise_wrong: int = Field(ge=0, description="examples that were wrong and are wrong with another answer")
    pool_accuracy: PoolAccuracy | None = Field(
        description="accuracy on the pool, estimated by the run that the suite was made from; the share of right "
        "examples of a suite is no estimate of it; null: it was not estimated"
    )
    criterion: str | None = Field(description="criterion of neuron coverage; null: it was not measured")
    met: int | None = Field(description="requirements that the suite meets with this model; null: not measured")
    requirements: int | None = Field(description="requirements of this model's layers; null: not measured")
    pool: SuiteCoverage | None = Field(
        description="how much of the pool of the run the suite covers; null: the model is no run"
    )
    age: float = Field(description="days since the suite was made")
    accepted: bool = Field(description="whether the suite now compares with these answers")
    warnings: list[str] = Field(description="how the model or the pool has left what the suite covers")


class _Answers(NamedTuple):
    """What a model says of the examples of a suite."""

    name: str
    texts: Sequence[str]  # predictions in canonical form, in the order of the suite
    layers: Layers  # hidden and output, (n, m) each, as far as they are known
    run: Run | None = None  # whose pool is compared with the suite


def regress(
    model: str | os.PathLike[str] | Mapping[str, Any],
    suite: str | os.PathLike[str],
    *,
    allow: int = 0,
    accept: bool = False,
) -> Regression:
    """Run a model on a regression suite, and compare its answers with those that the suite has.

    Parameters
    ----------
    model : path or URI of a spec (.yaml), of weights for the suite's model (.safetensors, .pt, ...), of a run, or of a
        table of predictions (.csv, .parquet); or predictions by id, as names or indexes of classes
    suite : URI of the suite
    allow : examples that may be wrong although they were right
    accept : let the suite compare with these answers from now on

    Returns
    -------
    Regression
        ``passed`` is whether no more than ``allow`` examples are wrong that were right

    Raises
    ------
    DataError
        There is no suite, the model cannot be run, or an example has no prediction.
    SpecError
        ``model`` is none of these, or has other classes than the suite.
    """
    if allow < 0:
        raise SpecError(f"allow={allow}: give a number of examples, 0 or more")
    opened = read_suite(os.fspath(suite))
    answers = _answers(model, opened)
    found = _compared(opened, answers, allow, accept=accept)
    if accept:
        _accept(opened, answers, found)
    return found


def _compared(opened: OpenSuite, answers: _Answers, allow: int, *, accept: bool) -> Regression:
    suite = opened.document
    pairs = list(zip(suite.examples, answers.texts, strict=True))
    right = [is_right(text, own.label, suite.within) for own, text in pairs]
    changed = [
        (own.right, Changed(id=own.id, label=own.label, before=own.prediction, now=text))
        for (own, text), now in zip(pairs, right, strict=True)
        if now != own.right
    ]
    wrong = [item for was_right, item in changed if was_right]
    others = sum(
        not own.right and not now and own.prediction != text for (own, text), now in zip(pairs, right, strict=True)
    )
    met, pool, warnings = _coverage(opened, answers)
    return Regression(
        suite=opened.uri,
        model=answers.name,
        passed=len(wrong) <= allow,
        allowed=allow,
        examples=len(pairs),
        right=sum(right),
        right_before=sum(own.right for own in suite.examples),
        newly_wrong=wrong,
        newly_right=[item for was_right, item in changed if not was_right],
        otherwise_wrong=others,
        pool_accuracy=suite.pool_accuracy,
        criterion=suite.coverage.criterion if suite.coverage and met else None,
        met=met[0] if met else None,
        requirements=met[1] if met else None,
        pool=pool,
        age=suite.age,
        accepted=accept,
        warnings=warnings,
    )


def _coverage(opened: OpenSuite, answers: _Answers) -> tuple[tuple[int, int] | None, SuiteCoverage | None, list[str]]:
    """Return the requirements that the suite meets, those that there are, the run's pool, and warnings."""
    made, layers = opened.document.coverage, answers.layers
    if made is None or not layers:
        return None, None, []
    rule = Criterion.parse(made.criterion)
    widths = [values.shape[1] for values in layers.values()]
    if opened.ranges and widths != [len(low) for low in opened.ranges.low]:
        known = [len(low) for low in opened.ranges.low]
        return None, None, [f"{rule} is not measured: the model's layers have {widths} neurons, the suite's {known}"]
    met, total = count(bits_of(layers, rule, opened.ranges)), rule.requirements(widths)
    warnings = _left_by_model(opened, met / total)
    if answers.run is None:
        return (met, total), None, warnings
    with feature_store.open_view(answers.run, ("prediction",), tuple(layers)) as view:
        pool = cover(view, layers, rule, opened.ranges) if set(layers) <= view.fields else None
    if pool is not None and pool.share < made.share - LEFT:
        warnings.append(
            f"the pool of {answers.run.uri} has left the suite: it meets {pool.pool:,} requirements of {rule}, and the "
            f"suite {100 * pool.share:.1f} % of these, where it met {100 * made.share:.1f} % of those of its own pool; "
            "label some of this pool and make a new suite"
        )
    return (met, total), pool, warnings


def _left_by_model(opened: OpenSuite, share: float) -> list[str]:
    last = next((own for own in reversed(opened.document.models) if own.met is not None and own.requirements), None)
    before = share if last is None else (last.met or 0) / (last.requirements or 1)
    if share >= before - LEFT:
        return []
    return [
        f"the model has left the suite: it meets {100 * share:.1f} % of the requirements with this model, and "
        f"{100 * before:.1f} % before, so it exercises less of the model; make a new suite from an audit of this model"
    ]


def _accept(opened: OpenSuite, answers: _Answers, found: Regression) -> None:
    """Write the suite with these answers; labels, inputs and what it covered when it was made stay."""
    suite = opened.document
    examples = [
        SuiteExample(id=own.id, label=own.label, prediction=text, right=is_right(text, own.label, suite.within))
        for own, text in zip(suite.examples, answers.texts, strict=True)
    ]
    entry = model_of(answers.name, examples, None).model_copy(
        update={"met": found.met, "requirements": found.requirements}
    )
    updated = suite.model_copy(update={"examples": examples, "models": [*suite.models, entry]})
    opened.store.write(DOCUMENT, updated.to_bytes())


# -- answers of a model ----------------------------------------------------------------------------------


def _answers(model: str | os.PathLike[str] | Mapping[str, Any], opened: OpenSuite) -> _Answers:
    if isinstance(model, Mapping):
        return _Answers("predictions", _read(model, opened, "the predictions"), {})
    uri = os.fspath(model)
    if is_table(uri):
        return _Answers(uri, _read(_table(uri), opened, uri), {})
    if uri.lower().endswith(WEIGHTS):
        return _run_model(uri, _with_weights(opened, uri), opened)
    if uri.lower().endswith((".yaml", ".yml")):
        return _run_model(uri, load_spec(uri), opened)
    if open_store(uri).exists(HEADER):
        return _of_run(Run.open(uri), opened)
    raise SpecError(
        f"{uri} is no model: give a spec (.yaml), weights ({', '.join(WEIGHTS)}), a run, or a table with id "
        "and prediction"
    )


def _with_weights(opened: OpenSuite, uri: str) -> Spec:
    spec = opened.spec
    if spec.model.factory is None:
        raise SpecError(f"{uri}: the model of the suite has no weights to replace; give a spec, a run or a table")
    return spec.model_copy(update={"model": spec.model.model_copy(update={"weights": uri, "sha256": None})})


def _run_model(name: str, spec: Spec, opened: OpenSuite, run: Run | None = None) -> _Answers:
    """Run the model of a spec on the inputs of a suite."""
    if opened.inputs is None or spec.pool.holds_features:
        what = "the suite has no inputs" if opened.inputs is None else "the spec has stored predictions and no model"
        raise SpecError(f"{name} cannot be run: {what}; give a table of predictions, or a run of them")
    _check_classes(name, spec.model, opened)
    pairs = zip(opened.document.examples, opened.inputs, strict=True)
    columns = run_here(spec, [Example(own.id, own.id, array) for own, array in pairs], name)
    texts = [spec.model.name_of(value) for value in columns["prediction"].tolist()]
    return _Answers(name, texts, {layer: columns[layer] for layer in LAYERS if layer in columns}, run)


def _of_run(run: Run, opened: OpenSuite) -> _Answers:
    """Return the answers of a run: its model on the inputs of the suite, or its stored predictions by id."""
    if opened.inputs is not None and not run.spec.pool.holds_features:
        return _run_model(run.uri, run.spec, opened, run)
    _check_classes(run.uri, run.spec.model, opened)
    ids = [example.id for example in opened.document.examples]
    predictions = dict(zip(ids, feature_store.find_predictions(run, ids), strict=True))
    places = run.complete_features().features.places(ids)
    layers = feature_store.read_rows(run, LAYERS, np.array([places[id] for id in ids], dtype=np.int64))
    return _Answers(run.uri, [run.spec.model.name_of(predictions[id]) for id in ids], layers, run)


def _check_classes(name: str, model: ModelSpec, opened: OpenSuite) -> None:
    own = opened.spec.model
    if (model.task, model.classes) != (own.task, own.classes):
        raise SpecError(
            f"{name} has task {model.task} and classes {model.classes}, and the suite {own.task} and {own.classes}; "
            "give a model of the same classes, in the same order"
        )


def _table(uri: str) -> dict[str, Any]:
    """Return the predictions of a table by id, as names of classes or numbers."""
    table = read_predictions(uri)
    if "id" not in table.columns:
        raise DataError(f"{uri} has no column of ids; add id, as the suite names its examples")
    columns = read_file(uri, text_columns=[table.columns["id"]])
    ids = columns[table.columns["id"]].to_pylist()
    said = columns[table.columns["prediction"]].to_pylist()
    return dict(zip(map(str, ids), said, strict=True))


def _read(given: Mapping[str, Any], opened: OpenSuite, source: str) -> list[str]:
    """Return the answers to all examples in canonical form; raises DataError if one is missing or no class."""
    ids = [own.id for own in opened.document.examples]
    missing = [id for id in ids if id not in given]
    if missing:
        raise DataError(
            f"{source} lacks {counted(len(missing), 'example')} of the {len(ids)} of {opened.uri}, the first "
            f"{missing[0]!r}; give a prediction for each"
        )
    model, texts = opened.spec.model, []
    read = reading_by(model, None)
    for id in ids:
        value = given[id]
        is_index = isinstance(value, int | np.integer) and 0 <= value < len(model.classes or ())
        try:
            texts.append(model.name_of(int(value)) if is_index else read(id, str(value)))
        except LabelError:
            raise DataError(f"{source} answers example {id!r} with {value!r}, which is no class of the suite") from None
    return texts
