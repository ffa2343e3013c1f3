"""Regression suites: few labelled examples of a run that cover what its model does, kept apart from run and pool.

    SUITE/suite.json    labels, answers of the model, and coverage (opacc-suite/1)
    SUITE/inputs.npz    the decoded examples, before the transform; none for a pool of stored features
    SUITE/ranges.npz    ranges of the neurons over the pool; only for a criterion that needs them

The examples are those that a method selects from the labelled ones. By default it is DeepReduce
(:mod:`opacc_ray.samplers.deepreduce`): few that meet every coverage requirement which all of them meet, and more until
their outputs are distributed alike. Coverage is that of the hidden and the output layer, as far as the run has them.

A regression runs a model on a suite, and reports what changed. The model is a spec, a file of weights for the model of
the suite, a run, or a table of predictions by id. It runs in this process: a suite is small, and its inputs are stored.
"""

import contextlib
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Document, Part, SealedDocument
from opacc_ray.errors import DataError, LabelError, SpecError, counted
from opacc_ray.extract.inference import run_here
from opacc_ray.labels.joining import reading_by
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import read_known
from opacc_ray.labels.shown_examples import ExampleFiles
from opacc_ray.lake.examples import Example
from opacc_ray.lake.formats.features import read_file
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.neurons.requirements import Criterion, Ranges
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import COLUMNS, LAYERS, Pool
from opacc_ray.runs.run import HEADER, Run, find_predictions, open_view, read_rows
from opacc_ray.runs.run_documents import StatedEstimate
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.select import select
from opacc_ray.spec import ModelSpec, Spec, load_spec, parse_spec
from opacc_ray.spec.table_spec import is_table, read_predictions

DOCUMENT, INPUTS, RANGES = "suite.json", "inputs.npz", "ranges.npz"

REDUCE = "deepreduce"

Layers = dict[str, NDArray[np.float32]]
"""Hidden and output layer, (n, m) each, as far as they are known."""


class SuiteExample(Part):
    """A labelled example of a suite."""

    id: str  # its id in the pool
    label: str  # its label, which does not change
    prediction: str  # answer of the model that the suite compares with
    right: bool  # whether that answer is right


class SuiteCoverage(Part):
    """How much of a model and of a pool a suite covers."""

    criterion: str  # criterion of neuron coverage, over the hidden and the output layer
    requirements: int = Field(ge=1)  # requirements of these layers
    met: int = Field(ge=0)  # requirements that the suite meets
    pool: int | None = Field(default=None, ge=0)  # requirements that the pool meets; null: no pool is known
    both: int | None = Field(default=None, ge=0)  # requirements of the pool that the suite meets

    @property
    def share(self) -> float:
        """Share of the pool's requirements that the suite meets; 1 if the pool meets none."""
        return (self.both or 0) / self.pool if self.pool else 1.0


class Suite(SealedDocument):
    """A regression suite: labelled examples, the answers of a model, and what they cover."""

    remedy: ClassVar[str] = "restore it, or make the suite again with `opacc suite`"

    format: Literal["opacc-suite/1"] = "opacc-suite/1"
    name: str  # name of the audit
    run: str  # URI of the run whose labels these are
    made: str  # when the suite was made, in ISO 8601
    labelled: int = Field(ge=1)  # labelled examples of the run, of which the suite has some
    pool_size: int = Field(ge=1)  # examples of the run's pool
    method: str = REDUCE  # method that chose the examples from the labelled ones
    within: float | None  # regression: largest error of a right answer; null: answers are classes
    pool_accuracy: StatedEstimate | None  # estimate of the run; null: it had none
    coverage: SuiteCoverage | None  # of the run's pool by the suite; null: the run has no layer
    model: str  # model whose answers the suite compares with: spec, weights, run or table
    examples: list[SuiteExample] = Field(min_length=1)  # in the order of choice
    files: dict[str, str]  # SHA-256 of each other file of the suite
    spec: dict[str, Any]  # spec of the run: model, transform and batches

    @property
    def failures(self) -> int:
        """Examples that the model gets wrong."""
        return sum(not own.right for own in self.examples)

    @property
    def age(self) -> float:
        """Days since the suite was made."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.made)).total_seconds() / 86400


class OpenSuite(NamedTuple):
    """A suite with its other files."""

    document: Suite
    store: Store
    inputs: list[NDArray[Any]] | None  # decoded examples, in the order of the document
    ranges: Ranges | None
    spec: Spec  # of the run


def make_suite(
    run: Run | str, uri: str, *, size: int | None = None, criterion: str = "nc:0.5", method: str = REDUCE
) -> Suite:
    """Make a regression suite of the labelled examples of a run, for :func:`opacc_ray.regress`.

    Parameters
    ----------
    run : its URI, or the open run
    uri : folder or prefix of the suite, which holds none yet
    size : most examples; default: as many as DeepReduce takes until it stops by itself, or all labelled ones
    criterion : of neuron coverage, such as nc:0.5, kmnc:10 or tknc:2
    method : which chooses the examples from the labelled ones; one that does not stop by itself needs a size

    Raises
    ------
    SpecError
        There is a suite at ``uri``, answers of the model are neither right nor wrong, or the method needs a size or
        another feature.
    LabelError
        No example has a label.
    DataError
        Examples cannot be read.
    """
    run, store = Run.open(run) if isinstance(run, str) else run, open_store(uri)
    if store.exists(DOCUMENT):
        raise SpecError(f"there is a suite at {store.uri} already; give another folder, or delete that one")
    within = _checked(run)
    rule, (places, labelled), stated = Criterion.parse(criterion), _labelled(run, within), run.read_estimate()
    with open_view(run, ("prediction",), LAYERS) as view:
        rows: dict[str, Any] = read_rows(run, (*LAYERS, *COLUMNS), places)
        layers: Layers = {name: rows[name] for name in LAYERS if name in rows}
        ranges = Ranges.merge(view.map(_part_ranges)) if rule.needs_ranges and layers else None
        covered = rule.bits(list(layers.values()), ranges) if layers else None
        chosen = _chosen(Pool(**rows, coverage=covered), size, method)
        coverage = cover({name: values[chosen] for name, values in layers.items()}, rule, ranges, view)
    examples = [labelled[row] for row in chosen]
    contents = _contents(run, examples, ranges)
    suite = Suite(
        name=run.spec.name,
        run=run.uri,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        labelled=len(labelled),
        pool_size=run.read_selection(run.rounds()[0]).pool_size,
        method=method,
        within=within,
        pool_accuracy=stated and StatedEstimate(**stated.model_dump(include=set(StatedEstimate.model_fields))),
        coverage=coverage,
        model=run.uri,
        examples=examples,
        files={name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        spec=run.spec.model_dump(mode="json"),
    )
    for name, data in (contents | {DOCUMENT: suite.to_bytes()}).items():  # the document last: then all is there
        store.write(name, data)
    return suite


def read_suite(uri: str) -> OpenSuite:
    """Read a suite; raises DataError if there is none, or a file was changed."""
    store = open_store(uri)
    data = store.read_if_there(DOCUMENT)
    if data is None:
        raise DataError(f"there is no suite at {store.uri} (no {DOCUMENT}); make one with `opacc suite RUN {uri}`")
    suite = Suite.from_bytes(data, store.uri_of(DOCUMENT))
    files = {name: store.read(name) for name in suite.files}
    for name, content in files.items():
        if hashlib.sha256(content).hexdigest() != suite.files[name]:
            raise DataError(f"{store.uri_of(name)} was changed since the suite was made; {Suite.remedy}")
    inputs = None
    if INPUTS in files:
        with np.load(io.BytesIO(files[INPUTS]), allow_pickle=False) as archive:
            inputs = [archive[f"{row:06d}"] for row in range(len(suite.examples))]
    ranges = Ranges.decode(files[RANGES], store.uri_of(RANGES)) if RANGES in files else None
    return OpenSuite(suite, store, inputs, ranges, parse_spec(suite.spec, f"the spec of {store.uri}"))


def is_right(prediction: str, label: str, within: float | None) -> bool:
    """Return whether an answer is right: the same text, or a number that is near enough."""
    return prediction == label if within is None else abs(float(prediction) - float(label)) <= within


def cover(
    layers: Layers, criterion: Criterion, ranges: Ranges | None, view: View | None = None
) -> SuiteCoverage | None:
    """Measure how much of a model, and of the pool of a ``view``, a suite covers, given its ``layers`` (n, m).

    None without layers.
    """
    if not layers:
        return None
    met, of_pool = _bits_of([*layers.values()], criterion, ranges), dict[str, int]()
    if view is not None:
        pool = np.bitwise_or.reduce(view.map(_part_bits, criterion, ranges))
        of_pool = {"pool": _count(pool), "both": _count(met & pool)}
    requirements = criterion.requirements([values.shape[1] for values in layers.values()])
    return SuiteCoverage(criterion=str(criterion), requirements=requirements, met=_count(met), **of_pool)


def _bits_of(layers: Sequence[NDArray[np.float32]], criterion: Criterion, ranges: Ranges | None) -> NDArray[np.uint8]:
    """Return the requirements that at least one example meets, as packed bits."""
    return np.asarray(np.bitwise_or.reduce(criterion.bits(layers, ranges), axis=0))


def _count(bits: NDArray[np.uint8]) -> int:
    return int(np.bitwise_count(bits).sum())


def _layers_of(part: Pool) -> list[NDArray[np.float32]]:
    return [getattr(part, name) for name in LAYERS if name in part.fields]


def _part_bits(part: Pool, criterion: Criterion, ranges: Ranges | None) -> NDArray[np.uint8]:
    return _bits_of(_layers_of(part), criterion, ranges)


def _part_ranges(part: Pool) -> Ranges:
    return Ranges.of(_layers_of(part))


def _checked(run: Run) -> float | None:
    """Return a regression's largest error of a right answer; raises SpecError unless answers are right or wrong."""
    if run.spec.model.task == "grade":
        raise SpecError(f"{run.uri} audits answers that people judged, and another model gives others; a suite needs "
                        "labels that do not depend on the answer")  # fmt: skip
    if run.spec.model.task != "regression":
        return None
    within = read_log(run).score.within
    if within is None:
        raise SpecError(f"{run.uri} is a regression; set score: {{within: E}} in its spec and run that, so that an "
                        "answer is right or wrong")  # fmt: skip
    return within


def _labelled(run: Run, within: float | None) -> tuple[NDArray[np.int64], list[SuiteExample]]:
    """Return the places (k,) of the labelled examples in the pool, and these, each once."""
    found: dict[str, tuple[int, SuiteExample]] = {}
    for item in read_known(run):
        for id, place, truth, said in zip(item.known.ids, item.known.index, item.truth, item.predicted, strict=True):
            own = SuiteExample(id=id, label=truth, prediction=said, right=is_right(said, truth, within))
            found[id] = int(place), own
    places, examples = zip(*found.values(), strict=True)
    return np.array(places, dtype=np.int64), list(examples)


def _chosen(labelled: Pool, size: int | None, method: str) -> NDArray[np.int64]:
    """Return which labelled examples a method chooses, in its order; DeepReduce all of them without outputs."""
    num, output = labelled.size, labelled.output
    if size is not None and not 1 <= size <= num:
        raise SpecError(f"size {size}: the run has {counted(num, 'labelled example')}; give 1 to {num}, or no size")
    if size is None and not parse_parameters(method, {}).stops_itself:
        raise SpecError(f"method {method} does not stop by itself; give a size from 1 to {num}, or method {REDUCE}")
    if method == REDUCE and (output is None or num == 1 or (output == output[0]).all()):
        if size is not None:
            raise SpecError("a size needs stored outputs that vary, by which examples are chosen; leave the size out")
        return np.arange(num)
    return select(view_of(labelled), method, size or num).index  # it may stop before


def _contents(run: Run, examples: Sequence[SuiteExample], ranges: Ranges | None) -> dict[str, bytes]:
    """Return the other files of a suite."""
    files = {} if ranges is None else {RANGES: ranges.encode()}
    if run.spec.pool.holds_features:
        return files
    arrays = ExampleFiles(run, run.rounds()).arrays([own.id for own in examples])
    sink = io.BytesIO()
    named: dict[str, Any] = {f"{row:06d}": arrays[own.id] for row, own in enumerate(examples)}
    np.savez_compressed(sink, **named)
    return files | {INPUTS: sink.getvalue()}


WEIGHTS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
"""Suffixes of files of weights."""

LEFT = 0.05
"""Share of requirements by which the coverage of a suite may fall before a warning reports it."""


class Changed(Part):
    """An example of a suite whose answer is right now and was wrong, or the reverse."""

    id: str  # its id
    label: str  # its label
    before: str  # answer that the suite compares with
    now: str  # answer of the model


class Regression(Document):
    """Result of a model on a regression suite."""

    format: Literal["opacc-regression/1"] = "opacc-regression/1"
    suite: str  # URI of the suite
    model: str  # spec, weights, run or table of the answers
    passed: bool  # whether no more examples than allowed are wrong that were right
    allowed: int = Field(ge=0)  # examples that may be wrong although they were right
    examples: int = Field(ge=1)  # examples of the suite
    right: int = Field(ge=0)  # examples that the model gets right
    right_before: int = Field(ge=0)  # examples that the model before got right
    newly_wrong: list[Changed]  # examples that were right and are wrong
    newly_right: list[Changed]  # examples that were wrong and are right
    otherwise_wrong: int = Field(ge=0)  # examples that were wrong and are wrong with another answer
    # accuracy on the pool, estimated by the run that the suite was made from; the share of right examples of a suite
    # is no estimate of it; null: it was not estimated
    pool_accuracy: StatedEstimate | None
    # how much of this model, and of the pool of a run, the suite covers; null: it was not measured
    coverage: SuiteCoverage | None
    age: float  # days since the suite was made
    accepted: bool  # whether the suite now compares with these answers
    warnings: list[str]  # how the model or the pool has left what the suite covers


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
    answers, document = _answers(model, opened), opened.document
    examples = [
        SuiteExample(id=own.id, label=own.label, prediction=text, right=is_right(text, own.label, document.within))
        for own, text in zip(document.examples, answers.texts, strict=True)
    ]
    pairs = list(zip(document.examples, examples, strict=True))
    coverage, warnings = _coverage(opened, answers)
    wrong = [_changed(before, now) for before, now in pairs if before.right and not now.right]
    result = Regression(
        suite=opened.store.uri,
        model=answers.name,
        passed=len(wrong) <= allow,
        allowed=allow,
        examples=len(examples),
        right=sum(now.right for now in examples),
        right_before=sum(before.right for before in document.examples),
        newly_wrong=wrong,
        newly_right=[_changed(before, now) for before, now in pairs if now.right and not before.right],
        otherwise_wrong=sum(
            before.prediction != now.prediction for before, now in pairs if not (before.right or now.right)
        ),
        pool_accuracy=document.pool_accuracy,
        coverage=coverage,
        age=document.age,
        accepted=accept,
        warnings=warnings,
    )
    if accept:  # labels, inputs and what the suite covers of its pool stay
        met = coverage.model_dump(include={"met", "requirements"}) if coverage else {}
        covered = document.coverage and document.coverage.model_copy(update=met)
        accepted = {"examples": examples, "model": answers.name, "coverage": covered}
        opened.store.write(DOCUMENT, document.model_copy(update=accepted).to_bytes())
    return result


def _changed(before: SuiteExample, now: SuiteExample) -> Changed:
    return Changed(id=now.id, label=now.label, before=before.prediction, now=now.prediction)


def _coverage(opened: OpenSuite, answers: _Answers) -> tuple[SuiteCoverage | None, list[str]]:
    """Return what the suite covers of a model, and of the pool of a run; and warnings."""
    made, layers, run = opened.document.coverage, answers.layers, answers.run
    if made is None or not layers:
        return None, []
    rule = Criterion.parse(made.criterion)
    widths = [values.shape[1] for values in layers.values()]
    if opened.ranges and widths != (known := [len(low) for low in opened.ranges.low]):
        return None, [f"{rule} is not measured: the model's layers have {widths} neurons, the suite's {known}"]
    with contextlib.ExitStack() as until:
        view = run and until.enter_context(open_view(run, ("prediction",), tuple(layers)))
        found = cover(layers, rule, opened.ranges, view if view and set(layers) <= view.fields else None)
    assert found is not None
    warnings, met, before = list[str](), found.met / found.requirements, made.met / made.requirements
    if met < before - LEFT:
        warnings.append(
            f"the model has left the suite: it meets {100 * met:.1f} % of the requirements with this model, and "
            f"{100 * before:.1f} % before, so it exercises less of the model; make a new suite from an audit of this "
            "model"
        )
    if run and found.pool is not None and found.share < made.share - LEFT:
        warnings.append(
            f"the pool of {run.uri} has left the suite: it meets {found.pool:,} requirements of {rule}, and the "
            f"suite {100 * found.share:.1f} % of these, where it met {100 * made.share:.1f} % of those of its own "
            "pool; label some of this pool and make a new suite"
        )
    return found, warnings


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
    predictions = dict(zip(ids, find_predictions(run, ids), strict=True))
    places = run.complete_features().features.places(ids)
    layers = read_rows(run, LAYERS, np.array([places[id] for id in ids], dtype=np.int64))
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
            f"{source} lacks {counted(len(missing), 'example')} of the {len(ids)} of {opened.store.uri}, the first "
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
