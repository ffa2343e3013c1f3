"""Regression suites: few labelled examples of a run that cover what its model does, kept apart from run and pool.

    SUITE/suite.json    labels, answers of the model, coverage and divergence (opacc-suite/1)
    SUITE/inputs.npz    the decoded examples, before the transform; none for a pool of stored features
    SUITE/ranges.npz    ranges of the neurons over the pool; only for a criterion that needs them

The examples are those that a method selects from the labelled ones. By default it is DeepReduce
(:mod:`opacc_ray.samplers.deepreduce`): few that meet every coverage requirement which all of them meet, and more until
their outputs are distributed alike. Coverage is that of the hidden and the output layer, as far as the run has them.
"""

import hashlib
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Part, SealedDocument, format_field
from opacc_ray.errors import DataError, SpecError, counted
from opacc_ray.labels.example_files import ExampleFiles
from opacc_ray.labels.label_log import read_log
from opacc_ray.labels.labelled_rounds import read_known
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.neurons.criteria import Criterion, Ranges
from opacc_ray.neurons.sections import equal_count, part_bounds, part_codes, part_counts, relative_entropy
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import COLUMNS, LAYERS, Pool
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.select import select
from opacc_ray.spec import Spec, parse_spec

DOCUMENT, INPUTS, RANGES = "suite.json", "inputs.npz", "ranges.npz"

REDUCE = "deepreduce"

SECTIONS = 20
"""Sections of each neuron of the output layer, for its divergence."""


class SuiteExample(Part):
    """A labelled example of a suite."""

    id: str = Field(description="its id in the pool")
    label: str = Field(description="its label, which does not change")
    prediction: str = Field(description="answer of the model that the suite compares with")
    right: bool = Field(description="whether that answer is right")


class SuiteCoverage(Part):
    """How much of a pool a suite covers, as one model sees both."""

    criterion: str = Field(description="criterion of neuron coverage, over the hidden and the output layer")
    requirements: int = Field(ge=1, description="requirements of these layers")
    met: int = Field(ge=0, description="requirements that the suite meets")
    pool: int = Field(ge=0, description="requirements that the pool meets")
    both: int = Field(ge=0, description="requirements of the pool that the suite meets")
    kl: float | None = Field(
        ge=0, description="KL divergence of the suite's outputs from the pool's; null: there is no output layer"
    )

    @property
    def share(self) -> float:
        """Share of the pool's requirements that the suite meets; 1 if the pool meets none."""
        return self.both / self.pool if self.pool else 1.0


class SuiteModel(Part):
    """A model whose answers a suite compares with, or compared with before."""

    model: str = Field(description="spec, weights, run or table of its answers")
    at: str = Field(description="when its answers were taken, in ISO 8601")
    right: int = Field(ge=0, description="examples that it gets right")
    met: int | None = Field(default=None, ge=0, description="requirements that the suite meets with it")
    requirements: int | None = Field(default=None, ge=1, description="requirements of its layers; null: not measured")


class PoolAccuracy(Part):
    """The estimate of the run from which a suite was made."""

    value: float = Field(description="accuracy on the pool")
    low: float = Field(description="lower end of its interval")
    high: float = Field(description="upper end")
    level: float = Field(description="confidence level of the interval")


class Suite(SealedDocument):
    """A regression suite: labelled examples, the answers of a model, and what they cover."""

    remedy: ClassVar[str] = "restore it, or make the suite again with `opacc suite`"

    format: Literal["opacc-suite/1"] = format_field("opacc-suite/1")
    name: str = Field(description="name of the audit")
    run: str = Field(description="URI of the run whose labels these are")
    made: str = Field(description="when the suite was made, in ISO 8601")
    labelled: int = Field(ge=1, description="labelled examples of the run, of which the suite has some")
    pool_size: int = Field(ge=1, description="examples of the run's pool")
    method: str = Field(default=REDUCE, description="method that chose the examples from the labelled ones")
    within: float | None = Field(description="regression: largest error of a right answer; null: answers are classes")
    pool_accuracy: PoolAccuracy | None = Field(description="estimate of the run; null: it had none")
    coverage: SuiteCoverage | None = Field(description="of the run's pool by the suite; null: the run has no layer")
    models: list[SuiteModel] = Field(min_length=1, description="models that the suite compared with, the newest last")
    examples: list[SuiteExample] = Field(min_length=1, description="in the order of choice")
    files: dict[str, str] = Field(description="SHA-256 of each other file of the suite")
    spec: dict[str, Any] = Field(description="spec of the run: model, transform and batches")

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

    @property
    def uri(self) -> str:
        return self.store.uri


class _Labelled(NamedTuple):
    """The labelled examples of a track, each once."""

    places: NDArray[np.int64]  # (k,) in the pool
    examples: list[SuiteExample]


def make_suite(
    run: Run, uri: str, *, size: int | None = None, criterion: str = "nc:0.5", method: str = REDUCE
) -> Suite:
    """Make a regression suite of the labelled examples of a run's track.

    Parameters
    ----------
    uri : folder or prefix of the suite, which holds none yet
    size : most examples; default: as many as DeepReduce takes until it stops by itself, or all labelled ones
    criterion : of neuron coverage, such as nc:0.5, kmnc:10 or tknc:2
    method : which chooses the examples from the labelled ones; one that does not stop by itself needs a size

    Raises SpecError if there is a suite at ``uri``, answers of the model are neither right nor wrong, or the method
    needs a size or another feature; LabelError if no example has a label; DataError if examples cannot be read.
    """
    store = open_store(uri)
    if store.exists(DOCUMENT):
        raise SpecError(f"there is a suite at {store.uri} already; give another folder, or delete that one")
    within = _checked(run)
    rule, known = Criterion.parse(criterion), _labelled(run, within)
    with feature_store.open_view(run, ("prediction",), LAYERS) as view:
        rows: dict[str, Any] = feature_store.read_rows(run, (*LAYERS, *COLUMNS), known.places)
        layers = {name: rows[name] for name in LAYERS if name in rows}
        ranges = ranges_of(view) if rule.needs_ranges and layers else None
        covered = rule.bits(list(layers.values()), ranges) if layers else None
        chosen = _chosen(Pool(**rows, coverage=covered), size, method)
        coverage = cover(view, {name: values[chosen] for name, values in layers.items()}, rule, ranges)
    examples = [known.examples[row] for row in chosen]
    contents = _contents(run, examples, ranges)
    suite = Suite(
        name=run.spec.name,
        run=run.uri,
        made=_now(),
        labelled=len(known.places),
        pool_size=run.read_selection(run.rounds()[0]).pool_size,
        method=method,
        within=within,
        pool_accuracy=_accuracy(run),
        coverage=coverage,
        models=[model_of(run.uri, examples, coverage)],
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
    inputs = _decoded(files[INPUTS], len(suite.examples)) if INPUTS in files else None
    ranges = Ranges.decode(files[RANGES], store.uri_of(RANGES)) if RANGES in files else None
    return OpenSuite(suite, store, inputs, ranges, parse_spec(suite.spec, f"the spec of {store.uri}"))


def model_of(name: str, examples: Sequence[SuiteExample], coverage: SuiteCoverage | None) -> SuiteModel:
    """Return the entry of a model whose answers the examples have now."""
    met = (coverage.met, coverage.requirements) if coverage else (None, None)
    return SuiteModel(model=name, at=_now(), right=sum(own.right for own in examples), met=met[0], requirements=met[1])


def is_right(prediction: str, label: str, within: float | None) -> bool:
    """Return whether an answer is right: the same text, or a number that is near enough."""
    return prediction == label if within is None else abs(float(prediction) - float(label)) <= within


def cover(
    view: View, layers: dict[str, NDArray[np.float32]], criterion: Criterion, ranges: Ranges | None
) -> SuiteCoverage | None:
    """Measure how much of a pool a suite covers, given its ``layers`` (n, m); None without layers."""
    if not layers:
        return None
    own, pool = bits_of(layers, criterion, ranges), np.bitwise_or.reduce(view.map(part_bits, criterion, ranges))
    return SuiteCoverage(
        criterion=str(criterion),
        requirements=criterion.requirements([values.shape[1] for values in layers.values()]),
        met=count(own),
        pool=count(pool),
        both=count(own & pool),
        kl=_divergence(view, layers["output"]) if "output" in layers else None,
    )


def bits_of(layers: dict[str, NDArray[np.float32]], criterion: Criterion, ranges: Ranges | None) -> NDArray[np.uint8]:
    """Return the requirements that at least one example meets, as packed bits."""
    return np.asarray(np.bitwise_or.reduce(criterion.bits(list(layers.values()), ranges), axis=0))


def count(bits: NDArray[np.uint8]) -> int:
    """Count the requirements in packed bits."""
    return int(np.bitwise_count(bits).sum())


def part_bits(part: Pool, criterion: Criterion, ranges: Ranges | None) -> NDArray[np.uint8]:
    """Return the requirements that at least one example of a part meets, as packed bits."""
    return bits_of({name: getattr(part, name) for name in LAYERS if name in part.fields}, criterion, ranges)


def ranges_of(view: View) -> Ranges:
    """Return the ranges of the neurons over a pool."""
    there = [name for name in LAYERS if name in view.fields]
    bounds = [view.map(part_bounds, name) for name in there]
    low, high = (tuple(end([own[side] for own in layer], axis=0) for layer in bounds)
                 for side, end in enumerate((np.min, np.max)))  # fmt: skip
    return Ranges(low, high)


def _divergence(view: View, output: NDArray[np.float32]) -> float | None:
    """Return KL(P_S || P_T) of the output layer, Formula 1 of DeepReduce; None if no output varies."""
    try:
        sections = equal_count(view, "output", SECTIONS)
    except DataError:  # all outputs are constant
        return None
    counts = view.total(part_counts, sections)
    codes = part_codes(Pool(output=output), np.arange(len(output)), (sections,))
    own = np.stack([np.bincount(neuron, minlength=SECTIONS) for neuron in codes.T])
    return relative_entropy(counts / counts.sum(axis=1, keepdims=True), own)


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


def _labelled(run: Run, within: float | None) -> _Labelled:
    found: dict[str, tuple[int, SuiteExample]] = {}
    for item in read_known(run):
        for id, place, truth, said in zip(item.known.ids, item.known.index, item.truth, item.predicted, strict=True):
            own = SuiteExample(id=id, label=truth, prediction=said, right=is_right(said, truth, within))
            found[id] = int(place), own
    places, examples = zip(*found.values(), strict=True)
    return _Labelled(np.array(places, dtype=np.int64), list(examples))


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


def _decoded(data: bytes, num: int) -> list[NDArray[Any]]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return [archive[f"{row:06d}"] for row in range(num)]


def _accuracy(run: Run) -> PoolAccuracy | None:
    found = run.read_estimate()
    if found is None:
        return None
    return PoolAccuracy(value=found.value, low=found.low, high=found.high, level=found.level)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
