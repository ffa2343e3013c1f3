"""Guided generation: feature vectors in requested shares near centroids and boundaries of classes, to test a model on.

S. Mani et al. 2019, https://arxiv.org/abs/1911.07309, Algorithm 1 and section 4.1. Examples of a class near its
boundary are moved along lines to centroids, x' = x + t(c - x), such that x' is in the requested region:

    near the centroid    c the centroid of its own class;  |x' - c| ≤ r · reach
    near a boundary      c the centroid of the strongest other class, towards or away from it;  the judge's
                         confidence in x' is in [θ₁, θ₂]; from an example near a boundary at most half of the way

The judge is the model's own rest of the network, from the layer of the features to its outputs:
:mod:`opacc_ray.extensions.characterize.cut_model`. For a model that cannot be run it is the last layer. If the outputs
are linear in the last hidden layer, least squares recover it from the stored features.

The oracle consists of the paper's properties of a classifier. The class of x' is that of x, and the judge should give
it the largest probability. Towards its own centroid, the probability of its class must not fall, and that of a wrongly
predicted class must not rise. Towards the other centroid, the probability of its own class must not rise and that of
the other class must not fall; away from it the reverse. A move that breaks a property is a *violation*. A vector counts
as correct if it is predicted as its class and does not violate.

After a ReLU no feature is below 0, so a negative value of x' becomes 0. A layer counts as rectified if the data set has
no negative feature.

Deviations. (1) The paper does not specify "optimizing w.r.t. x distribution"; here t is drawn uniformly from the values
with x' in its region. (2) Every class gets equally many vectors (EP = 1). (3) A class with no example near a boundary
starts from the examples of least confidence, which are counted. (4) Near a boundary the true class of a vector is
uncertain, and the label of x may be wrong for it: accuracy there is a stress test, not an estimate.

Legend: N examples, m neurons, C classes, n vectors, r, θ₁, θ₂ as in :mod:`characterize.classes`.
"""

import io
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import softmax

from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.case_files import READERS, suffix_of
from opacc_ray.extensions.characterize.characterization import Share
from opacc_ray.extensions.characterize.classes import (
    Clusters,
    Grouped,
    Regions,
    blocks,
    find_clusters,
    is_near,
    part_rows,
    width_of,
)
from opacc_ray.extensions.characterize.data_sets import FEATURES, By, DataSet, class_list, open_reference
from opacc_ray.extensions.characterize.vector_pictures import Pictures, draw_pictures
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.registry import has_package, require
from opacc_ray.runs.run import Run, open_view

if TYPE_CHECKING:
    from opacc_ray.extensions.characterize.cut_model import CutRun

Array = NDArray[np.float64]

LINEAR = 1e-3
"""Largest unexplained share of the outputs' standard deviation for outputs that are linear in the hidden layer."""

MOST_FITTED = 20_000
"""Examples that the last layer is recovered from."""

MOST, LEAST = 400, 20
"""Maximum number of start examples of a class; number of least confident ones if none is near a boundary."""

STEPS = np.concatenate([np.arange(-50, 0), np.arange(1, 101)]) / 100
"""Steps t towards the other centroid; negative steps lead away from it."""

HALF = 0.5
"""Share of the way to the other centroid beyond which a vector is unlikely to keep the class of its example."""

_ROUNDING = 1e-6
"""Rounding error of float32, relative to distances and features."""

_EQUAL = 1e-5
"""Largest difference of two probabilities of one vector: a network rounds to float32, by the number of rows too."""

AT_ONCE = 1 << 24
"""Numbers of the vectors that are judged at a time."""


class Vectors(NamedTuple):
    """Generated feature vectors and the predictions of the judge."""

    hidden: NDArray[np.float32]  # (n, m)
    label: NDArray[np.int64]  # (n,) the class of its source example
    near_centroid: NDArray[np.bool_]  # (n,) requested region; False: near a boundary
    source: NDArray[np.int64]  # (n,) that example, in the data set
    towards: NDArray[np.int64]  # (n,) class of the centroid of its line
    step: Array  # (n,) t
    predicted: NDArray[np.int64]  # (n,)
    confidence: Array  # (n,)
    violates: NDArray[np.bool_]  # (n,)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return which vectors (n,) are predicted as their class without a violation."""
        return (self.predicted == self.label) & ~self.violates


class Judge(Protocol):
    """A classifier of features."""

    def probabilities(self, hidden: NDArray[np.float32]) -> Array:
        """Return the probability of each class, (n, C), for features (n, m)."""


class Head(NamedTuple):
    """Outputs = hidden · weight + bias."""

    weight: Array  # (m, C)
    bias: Array  # (C,)
    agreement: float  # share of the examples for which it predicts the class of the model

    def probabilities(self, hidden: NDArray[np.float32] | Array) -> Array:
        """Return the probability of each class, (n, C), for features (n, m)."""
        return np.asarray(softmax(hidden.astype(np.float64) @ self.weight + self.bias, axis=1))


def find_head(view: View, num_classes: int, *, probabilities: bool = False, seed: int) -> Head:
    """Recover the last layer of a model from hidden, output and prediction of a random part of a pool.

    Parameters
    ----------
    view : the pool
    num_classes : C
    probabilities : whether outputs are probabilities; else they are logits
    seed : of the part

    Raises DataError if the outputs are not stored, not one per class, or not linear in the hidden layer.
    """
    index = np.sort(np.random.default_rng(seed).permutation(view.size)[:MOST_FITTED])
    output: NDArray[Any] = np.empty((0, 0))  # (k, C)
    if "output" in view.fields:
        output = view.take(part_rows, index, "output").astype(np.float64)
    if output.shape[1] == num_classes:
        hidden = view.take(part_rows, index, "hidden").astype(np.float64)
        inputs = np.column_stack([hidden, np.ones(len(index))])  # (k, m + 1)
        if probabilities:
            output = np.log(np.maximum(output, 1e-38))
        output -= output.mean(axis=1, keepdims=True)  # softmax does not depend on it
        weight = np.linalg.lstsq(inputs, output, rcond=1e-6)[0]  # (m + 1, C)
        fitted = inputs @ weight
        if (np.sqrt(((output - fitted) ** 2).mean(axis=0)) <= LINEAR * output.std(axis=0)).all():
            agreeing = fitted.argmax(axis=1) == view.column("prediction")[index]
            return Head(weight[:-1], weight[-1], float(agreeing.mean()))
    raise DataError(
        "the last layer of the model cannot be recovered, because its outputs are not stored or not linear in its "
        "hidden layer; generate from a run with a torch model and its inputs, whose own layers judge"
    )


class Sources(NamedTuple):
    """Examples near the boundaries of their classes, from which vectors start."""

    example: NDArray[np.int64]  # (k,) its place in the data set
    hidden: NDArray[np.float32]  # (k, m)
    label: NDArray[np.int64]  # (k,)
    far: NDArray[np.int64]  # classes without an example near a boundary, which use the least confident ones
    rectified: bool  # whether no feature of the data set is negative, as after a ReLU


def find_sources(
    data: Grouped, judge: Judge, clusters: Clusters, regions: Regions, rng: np.random.Generator
) -> Sources:
    """Find examples of each class near its boundary by the judge's confidence, at most MOST per class.

    A class without two different examples is left out.

    Raises
    ------
    DataError
        Fewer than two classes have examples, or none has two different ones.
    """
    if (clusters.num > 0).sum() < 2:
        raise DataError(
            f"all {data.view.size} examples belong to one class, but vectors are generated between classes; give a "
            "labelled --reference with examples of several classes"
        )
    confidence = np.concatenate(data.view.map(part_confidence, judge))
    classes = data.classes()
    near = is_near(confidence, regions)
    taken, far = [], []
    for i in np.flatnonzero(inner_radius(clusters, regions) > 0).tolist():
        own = np.flatnonzero(classes == i)
        found = rng.permutation(own[near[own]])[:MOST]
        if not len(found):
            found = own[np.argsort(confidence[own], kind="stable")[:LEAST]]
            far.append(i)
        taken.append(found)
    if not taken:
        raise DataError(
            "no class has two different examples, so no vectors can be generated; give a larger --reference"
        )
    index = np.concatenate(taken)
    rectified = min(data.view.map(part_least_feature)) >= 0
    return Sources(
        index, data.view.take(part_rows, index, "hidden"), classes[index], np.array(far, dtype=np.int64), rectified
    )


def generate(
    sources: Sources,
    judge: Judge,
    clusters: Clusters,
    regions: Regions,
    share: float,
    num: int,
    rng: np.random.Generator,
) -> Vectors:
    """Generate ``num`` vectors, a ``share`` of them near centroids and the others near boundaries.

    Raises
    ------
    SpecError
        Fewer than 1 vector, or a share outside [0, 1].
    DataError
        No vector of a class can be in its region.
    """
    if num < 1 or not 0 <= share <= 1:
        raise SpecError(f"{num} vectors with a share of {share} near centroids: give at least 1, and a share in [0, 1]")
    near = np.arange(num) < round(share * num)
    present = np.unique(sources.label)
    label = np.empty(num, dtype=np.int64)
    for part in (near, ~near):  # equally many of each class in each region
        label[part] = rng.permutation(np.resize(rng.permutation(present), int(part.sum())))
    source, towards, step = np.empty(num, dtype=np.int64), np.empty(num, dtype=np.int64), np.empty(num)
    for i in present.tolist():
        wanted = np.flatnonzero((label == i) & near)
        if len(wanted):
            source[wanted] = rng.choice(np.flatnonzero(sources.label == i), len(wanted))
            towards[wanted] = i
            step[wanted] = _to_centroid(sources.hidden[source[wanted]], clusters, i, regions, rng)
        wanted = np.flatnonzero((label == i) & ~near)
        if len(wanted):
            drawn = _to_boundary(i, sources, judge, clusters, regions, len(wanted), rng)
            source[wanted], towards[wanted], step[wanted] = drawn
    hidden = _move(sources.hidden[source], clusters.centroid[towards], step, sources.rectified)
    before, after = judge.probabilities(sources.hidden[source]), judge.probabilities(hidden)
    violates = _violations(before, after, label, towards, near, step)
    example, predicted, confidence = sources.example[source], after.argmax(axis=1), after.max(axis=1)
    return Vectors(hidden, label, near, example, towards, step, predicted, confidence, violates)


def inner_radius(clusters: Clusters, regions: Regions) -> Array:
    """Return the radius of each class (C,), less the rounding of float32; 0 or less if all examples are equal."""
    largest = np.abs(np.nan_to_num(clusters.centroid)).max(axis=1)
    reach = np.nan_to_num(clusters.reach)
    return regions.radius * reach - _ROUNDING * (reach + largest)


def _to_centroid(
    hidden: NDArray[np.float32], clusters: Clusters, i: int, regions: Regions, rng: np.random.Generator
) -> Array:
    """Draw steps (n,) that move examples (n, m) of class i within its radius."""
    away = np.linalg.norm(hidden - clusters.centroid[i], axis=1)
    least = np.clip(1 - inner_radius(clusters, regions)[i] / np.maximum(away, 1e-300), 0, 1)
    return least + (1 - least) * rng.random(len(hidden))


def _move(hidden: NDArray[np.float32], centroid: Array, step: Array, rectified: bool) -> NDArray[np.float32]:
    """Return x + t(c - x), not below 0 in a rectified layer."""
    found = (hidden + step[:, None] * (centroid - hidden)).astype(np.float32)
    return np.maximum(found, 0) if rectified else found


def _to_boundary(
    i: int, sources: Sources, judge: Judge, clusters: Clusters, regions: Regions, num: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Draw sources of class i, each with its strongest other class and a step towards it into the region, (num,)."""
    own = rng.permutation(np.flatnonzero(sources.label == i))
    fits, towards = np.empty((0, len(STEPS)), dtype=bool), np.empty(0, dtype=np.int64)
    while len(fits) < len(own) and (len(fits) < num or not fits.any()):  # a network is slow: no more lines than needed
        more = own[len(fits) : len(fits) + num]
        found, others = _fitting_steps(i, sources.hidden[more], sources.rectified, judge, clusters, regions)
        fits, towards = np.concatenate([fits, found]), np.concatenate([towards, others])
    possible = np.flatnonzero(fits.any(axis=1))
    if not len(possible):
        raise DataError(
            f"no example of class {i} can be moved to a confidence in the range of the boundary; widen --boundary"
        )
    line = rng.choice(possible, num)
    order = rng.random((num, len(STEPS))) * fits[line]
    return own[line], towards[line], STEPS[order.argmax(axis=1)]


def _fitting_steps(
    i: int, hidden: NDArray[np.float32], rectified: bool, judge: Judge, clusters: Clusters, regions: Regions
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which steps lead examples (k, m) of class i into the region, (k, STEPS), and the classes towards which."""
    output = judge.probabilities(hidden)
    begins_near = is_near(output.max(axis=1), regions)
    output[:, i] = -1
    output[:, np.isnan(clusters.centroid).any(axis=1)] = -1
    towards = output.argmax(axis=1)
    row, step = np.divmod(np.arange(len(hidden) * len(STEPS)), len(STEPS))
    near = np.empty(len(row), dtype=bool)
    rows_at_once = max(AT_ONCE // hidden.shape[1], 1)
    for start in range(0, len(row), rows_at_once):
        some = slice(start, start + rows_at_once)
        moved = _move(hidden[row[some]], clusters.centroid[towards[row[some]]], STEPS[step[some]], rectified)
        near[some] = is_near(judge.probabilities(moved).max(axis=1), regions)
    return near.reshape(len(hidden), -1) & (~begins_near[:, None] | (STEPS <= HALF)), towards


def _violations(
    before: Array,
    after: Array,
    label: NDArray[np.int64],
    towards: NDArray[np.int64],
    near_centroid: NDArray[np.bool_],
    step: Array,
) -> NDArray[np.bool_]:
    """Return which moves (n,) break a property, from the judge's probabilities (n, C) before and after."""
    rows, rise, wrong = np.arange(len(before)), after - before, before.argmax(axis=1)
    own, other, ahead = rise[rows, label], rise[rows, towards], np.sign(step)
    other_falls = (wrong == label) | (rise[rows, wrong] <= _EQUAL)
    return ~np.where(
        near_centroid, (own >= -_EQUAL) & other_falls, (ahead * own <= _EQUAL) & (ahead * other >= -_EQUAL)
    )


def in_region(vectors: Vectors, clusters: Clusters, regions: Regions) -> NDArray[np.bool_]:
    """Return which vectors (n,) are in the requested region."""
    away = np.linalg.norm(vectors.hidden - clusters.centroid[vectors.label], axis=1)
    near_boundary = (vectors.confidence >= regions.low - _EQUAL) & (vectors.confidence <= regions.high + _EQUAL)
    return np.where(vectors.near_centroid, away <= regions.radius * clusters.reach[vectors.label], near_boundary)


def part_least_feature(part: Pool) -> float:
    assert part.hidden is not None
    return float(part.hidden.min())


def part_confidence(part: Pool, judge: Judge) -> Array:
    """Return the judge's confidence in each example of a part, (n,)."""
    assert part.hidden is not None
    found = [judge.probabilities(part.hidden[rows]).max(axis=1) for rows in blocks(part.size)]
    return np.concatenate(found)


# -- for a run -----------------------------------------------------------------------------------------------------

DOCUMENT = "generation.json"


class GeneratedSet(Part):
    """One set of feature vectors, and the predictions of the model for them."""

    shares: str  # percent near centroids - percent near boundaries
    count: int = Field(ge=1)  # number of vectors
    accuracy: Share  # share predicted as their class, by a move that keeps the rules
    predicted: Share  # share predicted as their class
    violations: Share  # share whose move broke a property of classifiers
    near_centroid: Share | None  # accuracy of those near a centroid; null: there are none
    near_boundary: Share | None  # accuracy of those near a boundary; null: there are none
    file: str  # URI of the vectors, .npz


class Generation(Document):
    """Guided test sets of feature vectors."""

    remedy: ClassVar[str] = "make it again with `opacc generate`"

    format: Literal["opacc-generation/1"] = "opacc-generation/1"
    run: str  # URI of the run whose model is tested
    source: str  # URI of the data set that vectors start from
    labels: Literal["label", "prediction"]  # how examples are assigned to classes
    sources: int = Field(ge=1)  # examples that vectors start from
    # what judges vectors: the model's own layers after the cut; or, from stored features alone, its last layer,
    # recovered from these
    head: Literal["rest of the network", "last layer"]
    layer: str | None = None  # layer whose output vectors replace; null: the stored one
    shape: list[int] | None = None  # shape of a vector as the layer's map
    agreement: Share  # share of examples for which it predicts what the run holds
    radius: float = Field(gt=0, le=1)  # r: near the centroid is within this share of the largest distance
    boundary: list[Share] = Field(min_length=2, max_length=2)  # [θ₁, θ₂]: confidence near a boundary
    seed: int = Field(ge=0)  # of the draw
    sets: list[GeneratedSet]  # the sets, in the requested order
    pictures: Pictures | None  # null if none were requested
    remarks: list[str]  # remarks on the sets


class Wanted(NamedTuple):
    """A set of vectors to generate."""

    centroid: float  # share near centroids, in [0, 1]
    num: int

    @property
    def shares(self) -> str:
        return f"{100 * self.centroid:g}-{100 - 100 * self.centroid:g}"


class _Start(NamedTuple):
    """The examples that vectors start from, and the judge of vectors."""

    uri: str
    data: Grouped
    judge: Judge
    kind: Literal["rest of the network", "last layer"]
    agreement: float  # of judge and model
    remarks: Sequence[str] = ()
    cut: "CutRun | None" = None


def generate_for(
    run: Run,
    wanted: Sequence[Wanted],
    *,
    reference: str | None = None,
    layer: str | None = None,
    regions: Regions,
    seed: int = 0,
    pictures: bool = False,
    out: str | None = None,
) -> Generation:
    """Generate sets of vectors, judge them, and write them with ``generation.json``.

    Parameters
    ----------
    run : the run whose model is tested
    wanted : the sets of vectors
    reference : another run of the same model, or a labelled case, that vectors start from; None: the pool of the run
    layer : name of the layer whose output is replaced by vectors; None: the hidden layer of the run
    regions : where they are to lie
    seed : of the draw
    pictures : whether some vectors are decoded to a contact sheet
    out : URI of a folder; None: ``generated/`` next to the estimate of the run

    Raises
    ------
    SpecError
        The run audits a regression model, or its model cannot be run and a layer or pictures are wanted.
    DataError
        The reference has features of another width or other classes, all examples are of one class, a class has no
        vector in its region, or the layer does not determine the outputs.
    """
    if not run.spec.model.has_classes:
        raise SpecError(f"{run.uri} audits a regression model, but vectors are generated between classes")
    store = open_store(out) if out else run.results().store("generated")
    is_file = reference is not None and suffix_of(reference) in READERS
    source = run if reference is None else None if is_file else Run.open(reference)
    why = why_not_cut(run, source)
    for option, value in (("--layer", layer), ("--pictures", pictures)):
        if why is not None and value:
            raise SpecError(f"{option} needs the model's own layers, and {run.uri} cannot be cut: {why}; remove it")
    if pictures:
        require("a picture of a vector", "PIL")
    names = class_list(run).names
    with ExitStack() as stack:
        if source is None or why is not None:
            start = _stored(run, reference, len(names), seed, stack)
        else:
            start = _cut(run, source, layer, len(names), seed, stack)
        clusters, rng = find_clusters(start.data), np.random.default_rng(seed)
        sources = find_sources(start.data, start.judge, clusters, regions, rng)
        vectors = [generate(sources, start.judge, clusters, regions, *one, rng) for one in wanted]
        for made in vectors:  # before anything is written
            _refuse_outside(made, clusters, regions)
        sets = [_write(store, one, made, start.cut) for one, made in zip(wanted, vectors, strict=True)]
        drawn = None
        if pictures and start.cut:
            pairs = [(made.hidden, made.label) for made in vectors]
            drawn = draw_pictures(start.cut.maps, start.cut.arrays, pairs, store)
        document = Generation(
            run=run.uri,
            source=start.uri,
            labels="prediction" if start.data.label is None else "label",
            sources=len(sources.example),
            head=start.kind,
            layer=(layer or run.spec.model.hidden_layer or "input of the last Linear") if start.cut else None,
            shape=list(start.cut.shape) if start.cut else None,
            agreement=start.agreement,
            radius=regions.radius,
            boundary=[regions.low, regions.high],
            seed=seed,
            sets=sets,
            pictures=drawn,
            remarks=[*start.remarks, *_remarks(start, sources, names)],
        )
    store.write(DOCUMENT, document.to_bytes())
    return document


def _refuse_outside(made: Vectors, clusters: Clusters, regions: Regions) -> None:
    outside = int((~in_region(made, clusters, regions)).sum())
    if outside:
        raise DataError(
            f"{outside} of {len(made.label)} vectors do not lie in their region, since the features of a class "
            "differ by hardly more than they are rounded; give a larger --radius"
        )


def why_not_cut(run: Run, source: Run | None) -> str | None:
    """Return why a run's model cannot be cut and run on the pool of ``source``; None if it can."""
    if run.spec.pool.holds_features:
        return "its pool holds features, which the model does not run on"
    if run.spec.model.factory is None:
        return "its model is no torch module of a factory"
    if source is None:
        return "the reference is a table of features, which the model does not run on"
    if source.spec.pool.holds_features:
        return f"the pool of {source.uri} holds features, which the model does not run on"
    return None if has_package("torch") else "torch is not installed here"


def _cut(run: Run, source: Run, layer: str | None, num_classes: int, seed: int, stack: ExitStack) -> _Start:
    """Cut the model, and record its maps of examples of the source."""
    from opacc_ray.extensions.characterize.cut_model import cut  # imports torch

    if source is not run:
        open_reference(source.uri, run, stack)  # refuses one with other classes
    part = stack.enter_context(cut(run, source, layer, seed))
    data = Grouped(view_of(part.pool), num_classes)
    return _Start(source.uri, data, part.rest, "rest of the network", part.agreement, cut=part)


def _stored(run: Run, reference: str | None, num_classes: int, seed: int, stack: ExitStack) -> _Start:
    """Recover the head of the model from the stored features of the run."""
    view = stack.enter_context(open_view(run, ("hidden", "prediction"), FEATURES))
    is_share = run.spec.model.output in ("probabilities", "probability")
    head = find_head(view, num_classes, probabilities=is_share, seed=seed)
    start = open_reference(reference, run, stack) if reference else DataSet(run.uri, view)
    by: By = "prediction" if start.label is None else "label"
    data = start.grouped(num_classes, by)
    if width_of(data) != len(head.weight):
        raise DataError(
            f"the hidden layer has {len(head.weight)} neurons in {run.uri} and {width_of(data)} in {start.uri}; "
            "give a reference that the same model has seen"
        )
    return _Start(start.uri, data, head, "last layer", head.agreement, start.remarks_by(by))


def _write(store: Store, wanted: Wanted, made: Vectors, part: "CutRun | None") -> GeneratedSet:
    sink, content = io.BytesIO(), made._asdict()
    if part is not None:
        content["source"] = part.places[made.source]  # in the whole pool
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
    remarks = ["the accuracy on vectors is a stress test of the model; it does not estimate the accuracy on a pool"]
    if start.data.label is None:
        remarks.append("the class of a vector is the prediction for its source example, which may be wrong")
    if len(sources.far):
        far = ", ".join(names[i] for i in sources.far.tolist())
        remarks.append(f"no example is near a boundary of {far}: those of least confidence are used instead")
    left_out = [name for i, name in enumerate(names) if not (sources.label == i).any()]
    if left_out:
        remarks.append(f"there is no vector for {', '.join(left_out)}, which has fewer than two different examples")
    return remarks
