"""Generate feature vectors near centroids and boundaries, and test a run's model on them.

The model is cut at a layer, and its remaining layers judge the vectors. If there are only stored features, which it
cannot run on, a head that is recovered from these takes its place: :mod:`opacc_ray.datasets.head`.
"""

import io
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Literal, NamedTuple

import numpy as np

from opacc_ray.audit.characterization import FEATURES, ReferenceSet, class_names
from opacc_ray.audit.characterization_documents import GeneratedSet, Generation, Pictures
from opacc_ray.cluster import session
from opacc_ray.datasets.class_coverage import Regions
from opacc_ray.datasets.classes import Grouped, find_clusters, width_of
from opacc_ray.datasets.generation import Sources, Vectors, find_sources, generate, in_region
from opacc_ray.datasets.head import Judge, find_head
from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.parts.view import view_of
from opacc_ray.report.characterized import open_reference
from opacc_ray.report.rest_of_network import CutRun, cut, why_not_cut
from opacc_ray.report.stress_suite import Decoded, decode_suite, run_suite
from opacc_ray.report.vector_pictures import draw_pictures, learn_pictures, read_images
from opacc_ray.runs.feature_store import open_view
from opacc_ray.runs.run import Run
from opacc_ray.study.case_files import READERS, suffix_of

DOCUMENT = "generation.json"


class Wanted(NamedTuple):
    """A set of vectors to generate."""

    centroid: float  # share near centroids, in [0, 1]
    num: int

    @property
    def shares(self) -> str:
        return f"{100 * self.centroid:g}-{100 - 100 * self.centroid:g}"


class Asked(NamedTuple):
    """What is generated.

    Parameters
    ----------
    sets : the sets of vectors
    reference : another run of the same model, or a labelled case, that vectors start from; None: the pool of the run
    layer : name of the layer whose output is replaced by vectors; None: the hidden layer of the run
    regions : where they are to lie
    seed : of the draw and the decoder
    pictures : whether some vectors are decoded to a contact sheet
    suite : most images of a stress suite of decoded vectors; None: there is none
    """

    sets: Sequence[Wanted]
    reference: str | None
    layer: str | None
    regions: Regions
    seed: int
    pictures: bool
    suite: int | None


class _Start(NamedTuple):
    """The examples that vectors start from, and the judge of vectors."""

    uri: str
    data: Grouped
    judge: Judge
    kind: Literal["rest of the network", "last layer", "logistic regression"]
    agreement: float  # of judge and model
    remarks: Sequence[str] = ()
    cut: CutRun | None = None


class _Made(NamedTuple):
    start: _Start
    sources: Sources
    sets: list[GeneratedSet]
    pictures: Pictures | None
    suite: Decoded | None


def generate_for(run: Run, asked: Asked, out: str | None = None) -> Generation:
    """Generate sets of vectors, judge them, and write them with ``generation.json``.

    ``out`` is the URI of a folder; None: ``generated/`` in the prefix of the run, or of its track.

    Raises
    ------
    SpecError
        The run audits a regression model, or its model cannot be run and a layer or a suite is wanted.
    DataError
        The reference has features of another width or other classes, all examples are of one class, a class has no
        vector in its region, or the layer does not determine the outputs.
    """
    if not run.spec.model.has_classes:
        raise SpecError(f"{run.uri} audits a regression model, but vectors are generated between classes")
    store = open_store(out) if out else run.results().store("generated")
    is_file = asked.reference is not None and suffix_of(asked.reference) in READERS
    source = run if asked.reference is None else None if is_file else Run.open(asked.reference)
    why = why_not_cut(run, source)
    if why is not None and (asked.layer is not None or asked.suite):
        option = "--suite" if asked.suite else "--layer"
        raise SpecError(f"{option} runs the model's own layers, and {run.uri} cannot be cut: {why}; remove it")
    with nullcontext() if why else session.connected():
        found = _make(run, asked, None if why else source, store)
        suite = found.suite and run_suite(run, found.suite)
    start, cut_at = found.start, asked.layer or run.spec.model.hidden_layer or "input of the last Linear"
    document = Generation(
        run=run.uri,
        source=start.uri,
        labels="prediction" if start.data.label is None else "label",
        sources=len(found.sources.example),
        head=start.kind,
        layer=cut_at if start.cut else None,
        shape=list(start.cut.shape) if start.cut else None,
        agreement=start.agreement,
        radius=asked.regions.radius,
        boundary=[asked.regions.low, asked.regions.high],
        seed=asked.seed,
        sets=found.sets,
        pictures=found.pictures,
        suite=suite,
        remarks=[*start.remarks, *_remarks(start, found.sources, class_names(run))],
    )
    store.write(DOCUMENT, document.to_bytes())
    return document


def _make(run: Run, asked: Asked, source: Run | None, store: Store) -> _Made:
    """Generate, judge and decode vectors; ``source`` is the run with inputs to cut the model on, if it can be cut."""
    names, regions, seed = class_names(run), asked.regions, asked.seed
    with ExitStack() as stack:
        start = _cut(run, source, asked, len(names), stack) if source else _stored(run, asked, len(names), stack)
        clusters, rng = find_clusters(start.data), np.random.default_rng(seed)
        sources = find_sources(start.data, start.judge, clusters, regions, rng)
        vectors = [generate(sources, start.judge, clusters, regions, *one, rng) for one in asked.sets]
        for made in vectors:  # before anything is written
            _check_regions(int((~in_region(made, clusters, regions)).sum()), len(made.label))
        sets = [_write(store, one, made, start.cut) for one, made in zip(asked.sets, vectors, strict=True)]
        if not asked.pictures and not asked.suite:
            return _Made(start, sources, sets, None, None)
        hidden, arrays = (start.cut.maps, start.cut.arrays) if start.cut else read_images(run, seed)
        learned = learn_pictures(hidden, arrays, seed)
        pictures = draw_pictures(learned, list(zip(sets, vectors, strict=True)), names, store, seed)
        if not asked.suite:
            return _Made(start, sources, sets, pictures, None)
        assert start.cut is not None  # else generate_for refuses a suite
        suite = decode_suite(start.cut, learned, vectors, asked.suite, names, store, seed)
        return _Made(start, sources, sets, pictures, suite)


def _cut(run: Run, source: Run, asked: Asked, num_classes: int, stack: ExitStack) -> _Start:
    """Cut the model, and record its maps of examples of the source."""
    if source is not run:
        open_reference(source.uri, run, stack)  # refuses one with other classes
    own = stack.enter_context(cut(run, source, asked.layer, asked.seed))
    data = Grouped(view_of(own.pool), num_classes)
    return _Start(source.uri, data, own.rest, "rest of the network", own.agreement, cut=own)


def _stored(run: Run, asked: Asked, num_classes: int, stack: ExitStack) -> _Start:
    """Recover the head of the model from the stored features of the run."""
    view = stack.enter_context(open_view(run, ("hidden", "prediction"), FEATURES))
    pool = Grouped(view, num_classes)
    head = find_head(pool, probabilities=run.spec.model.output in ("probabilities", "probability"), seed=asked.seed)
    known = open_reference(asked.reference, run, stack) if asked.reference else ReferenceSet(run.uri, view)
    data = known.by_label(num_classes) if known.label is not None else Grouped(known.view, num_classes)
    if width_of(data) != len(head.weight):
        raise DataError(
            f"the hidden layer has {len(head.weight)} neurons in {run.uri} and {width_of(data)} in {known.uri}; "
            "give a reference that the same model has seen"
        )
    return _Start(known.uri, data, head, head.kind, head.agreement, [*known.remarks, *known.left_out()])


def _check_regions(outside: int, num: int) -> None:
    if outside:
        raise DataError(
            f"{outside} of {num} vectors do not lie in their region, since the features of a class "
            "differ by hardly more than they are rounded; give a larger --radius"
        )


def _write(store: Store, wanted: Wanted, made: Vectors, own: CutRun | None) -> GeneratedSet:
    sink, content = io.BytesIO(), made._asdict()
    if own is not None:
        content["source"] = own.places[made.source]  # in the whole pool
    np.savez_compressed(sink, **content)
    name = f"vectors-{wanted.shares}-{wanted.num}.npz"
    store.write(name, sink.getvalue())
    near, correct = made.near_centroid, made.correct
    return GeneratedSet(
        shares=wanted.shares,
        count=wanted.num,
        accuracy=float(correct.mean()),
        predicted=float((made.predicted == made.label).mean()),
        violations=float(made.violates.mean()),
        near_centroid=float(correct[near].mean()) if near.any() else None,
        near_boundary=float(correct[~near].mean()) if not near.all() else None,
        file=store.uri_of(name),
    )


def _remarks(start: _Start, sources: Sources, names: Sequence[str]) -> list[str]:
    found = ["the accuracy on vectors is a stress test of the model; it does not estimate the accuracy on a pool"]
    if start.data.label is None:
        found.append("the class of a vector is the prediction for its source example, which may be wrong")
    if len(sources.far):
        far = ", ".join(names[i] for i in sources.far.tolist())
        found.append(f"no example is near a boundary of {far}: those of least confidence are used instead")
    left_out = [name for i, name in enumerate(names) if not (sources.label == i).any()]
    if left_out:
        found.append(f"there is no vector for {', '.join(left_out)}, which has fewer than two different examples")
    if start.kind == "logistic regression":
        found.append(
            "the model's outputs are not linear in its hidden layer, or not stored: a logistic regression of its "
            f"predictions is used instead, which agrees on {100 * start.agreement:.1f} % of the pool; from a run with "
            "inputs and a torch model, the model's own layers judge"
        )
    return found
