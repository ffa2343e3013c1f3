"""Generate feature vectors for a run's model, test its head on them, and write both."""

import io
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from opacc_ray.audit.characterization import FEATURES, ReferenceSet, class_names
from opacc_ray.audit.characterization_documents import GeneratedSet, Generation, Pictures
from opacc_ray.characterize.classes import Grouped
from opacc_ray.characterize.clusters import Clusters, find_clusters
from opacc_ray.characterize.generation import Sources, Vectors, find_sources, generate, in_region
from opacc_ray.characterize.head import Head, find_head
from opacc_ray.characterize.metrics import Regions
from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.report.characterized import open_reference
from opacc_ray.runs.feature_store import open_view
from opacc_ray.runs.run import Run

DOCUMENT = "generation.json"


class Wanted(NamedTuple):
    """A set that is asked for."""

    centroid: float  # share near centroids, in [0, 1]
    num: int

    @property
    def shares(self) -> str:
        return f"{100 * self.centroid:g}-{100 - 100 * self.centroid:g}"


class Made(NamedTuple):
    """What was made, for the decoder."""

    document: Generation
    store: Store
    vectors: list[Vectors]
    sources: Sources


def generate_for(
    run: Run,
    wanted: Sequence[Wanted],
    reference: str | None = None,
    *,
    regions: Regions | None = None,
    seed: int = 0,
    out: str | None = None,
) -> Made:
    """Generate the sets that are asked for, and write their vectors and ``generation.json``.

    Parameters
    ----------
    run : whose model is tested; with hidden, and output for its own last layer
    wanted : the sets
    reference : a labelled case, or another run of the same model, that vectors start from; None: the pool of the run
    regions : where they are to lie
    seed : of the draw
    out : URI of a folder; None: ``generated/`` in the prefix of the run, or of its track

    Raises
    ------
    SpecError
        The run is of a regression.
    DataError
        The reference has features of another width or other classes, all examples are of one class, or a class has no
        vector in its region.
    """
    if run.spec.model.task == "regression":
        raise SpecError(f"{run.uri} is of a regression, and vectors are generated between classes")
    regions, names = regions or Regions(), class_names(run)
    with ExitStack() as stack:
        view = stack.enter_context(open_view(run, ("hidden", "prediction"), FEATURES))
        pool = Grouped(view, len(names))
        head = find_head(pool, probabilities=run.spec.model.output in ("probabilities", "probability"), seed=seed)
        known = open_reference(reference, run, stack) if reference else ReferenceSet(run.uri, view)
        data = known.by_label(len(names)) if known.label is not None else Grouped(known.view, len(names))
        clusters = find_clusters(data)
        if clusters.width != len(head.weight):
            raise DataError(
                f"the hidden layer has {len(head.weight)} neurons in {run.uri} and {clusters.width} in {known.uri}; "
                "give a reference that the same model has seen"
            )
        rng = np.random.default_rng(seed)
        sources = find_sources(data, head, clusters, regions, rng)
        vectors = [generate(sources, head, clusters, regions, one.centroid, one.num, rng) for one in wanted]
    _check(vectors, clusters, regions)
    store = open_store(out) if out else run.results().store("generated")
    document = _document(run, known.uri, data, head, sources, regions, seed)
    sets = [_write(store, one, made) for one, made in zip(wanted, vectors, strict=True)]
    remarks = [*known.remarks, *known.left_out(), *_remarks(data, sources, head, names)]
    document = document.model_copy(update={"sets": sets, "remarks": remarks})
    store.write(DOCUMENT, document.to_bytes())
    return Made(document, store, vectors, sources)


def _document(
    run: Run, source: str, data: Grouped, head: Head, sources: Sources, regions: Regions, seed: int
) -> Generation:
    """The document without its sets."""
    return Generation(
        run=run.uri,
        source=source,
        labels="prediction" if data.label is None else "label",
        sources=len(sources.example),
        head=head.kind,
        agreement=head.agreement,
        radius=regions.radius,
        boundary=[regions.low, regions.high],
        seed=seed,
        sets=[],
        pictures=None,
        remarks=[],
    )


def with_pictures(made: Made, pictures: Pictures) -> Generation:
    """The document with its pictures, written again."""
    document = made.document.model_copy(update={"pictures": pictures})
    made.store.write(DOCUMENT, document.to_bytes())
    return document


def _check(vectors: Sequence[Vectors], clusters: Clusters, regions: Regions) -> None:
    """Raise DataError if a vector does not lie where it was asked to: none is written then."""
    for made in vectors:
        outside = int((~in_region(made, clusters, regions)).sum())
        if outside:
            raise DataError(
                f"{outside} of {len(made.label)} vectors do not lie in their region, since the features of a class "
                "differ by hardly more than they are rounded; give a larger --radius"
            )


def _write(store: Store, wanted: Wanted, made: Vectors) -> GeneratedSet:
    sink = io.BytesIO()
    np.savez_compressed(sink, **made._asdict())
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


def _remarks(data: Grouped, sources: Sources, head: Head, names: Sequence[str]) -> list[str]:
    said = ["vectors are no examples: their accuracy is a stress test of the head, and estimates nothing of a pool"]
    if data.label is None:
        said.append(
            "the class of a vector is what the model predicts of the example that it is made of, which may be wrong"
        )
    if len(sources.far):
        far = ", ".join(names[i] for i in sources.far.tolist())
        said.append(f"no example is near a boundary of {far}: those of least confidence stand in")
    left_out = [name for i, name in enumerate(names) if not (sources.label == i).any()]
    if left_out:
        said.append(f"no vector is of {', '.join(left_out)}, of which there are not two different examples")
    if head.kind == "logistic regression":
        said.append(
            "the model's outputs are not linear in its hidden layer, or not stored: a logistic regression of its "
            f"predictions stands in, which agrees on {100 * head.agreement:.1f}% of the pool"
        )
    return said
