"""Generate feature vectors near centroids and boundaries, test a run's classifier head on them, and decode some."""

import io
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.characterization import FEATURES, ReferenceSet, class_names
from opacc_ray.audit.characterization_documents import GeneratedSet, Generation, Pictures
from opacc_ray.audit.progress import Progress
from opacc_ray.datasets.class_coverage import Regions
from opacc_ray.datasets.classes import Grouped, find_clusters, width_of
from opacc_ray.datasets.generation import Sources, Vectors, find_sources, generate, in_region
from opacc_ray.datasets.head import Head, find_head
from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.examples import Example
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.report.characterized import open_reference
from opacc_ray.runs.feature_store import open_view
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, plan_pool, rules_of

DOCUMENT = "generation.json"


class Wanted(NamedTuple):
    """A set of vectors to generate."""

    centroid: float  # share near centroids, in [0, 1]
    num: int

    @property
    def shares(self) -> str:
        return f"{100 * self.centroid:g}-{100 - 100 * self.centroid:g}"


class Made(NamedTuple):
    """Generated vectors, for the decoder."""

    document: Generation
    store: Store
    vectors: list[Vectors]


def generate_for(
    run: Run,
    wanted: Sequence[Wanted],
    reference: str | None = None,
    *,
    regions: Regions | None = None,
    seed: int = 0,
    out: str | None = None,
) -> Made:
    """Generate sets of vectors, and write them with ``generation.json``.

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
        The run audits a regression model.
    DataError
        The reference has features of another width or other classes, all examples are of one class, or a class has no
        vector in its region.
    """
    if not run.spec.model.has_classes:
        raise SpecError(f"{run.uri} audits a regression model, but vectors are generated between classes")
    regions, names = regions or Regions(), class_names(run)
    with ExitStack() as stack:
        view = stack.enter_context(open_view(run, ("hidden", "prediction"), FEATURES))
        pool = Grouped(view, len(names))
        head = find_head(pool, probabilities=run.spec.model.output in ("probabilities", "probability"), seed=seed)
        known = open_reference(reference, run, stack) if reference else ReferenceSet(run.uri, view)
        data = known.by_label(len(names)) if known.label is not None else Grouped(known.view, len(names))
        clusters = find_clusters(data)
        if width_of(data) != len(head.weight):
            raise DataError(
                f"the hidden layer has {len(head.weight)} neurons in {run.uri} and {width_of(data)} in {known.uri}; "
                "give a reference that the same model has seen"
            )
        rng = np.random.default_rng(seed)
        sources = find_sources(data, head, clusters, regions, rng)
        vectors = [generate(sources, head, clusters, regions, one.centroid, one.num, rng) for one in wanted]
    for made in vectors:
        outside = int((~in_region(made, clusters, regions)).sum())
        if outside:  # nothing is written
            raise DataError(
                f"{outside} of {len(made.label)} vectors do not lie in their region, since the features of a class "
                "differ by hardly more than they are rounded; give a larger --radius"
            )
    store = open_store(out) if out else run.results().store("generated")
    document = Generation(
        run=run.uri,
        source=known.uri,
        labels="prediction" if data.label is None else "label",
        sources=len(sources.example),
        head=head.kind,
        agreement=head.agreement,
        radius=regions.radius,
        boundary=[regions.low, regions.high],
        seed=seed,
        sets=[_write(store, one, made) for one, made in zip(wanted, vectors, strict=True)],
        pictures=None,
        remarks=[*known.remarks, *known.left_out(), *_remarks(data, sources, head, names)],
    )
    store.write(DOCUMENT, document.to_bytes())
    return Made(document, store, vectors)


def with_pictures(made: Made, pictures: Pictures) -> Generation:
    """Write the document again, with its pictures."""
    document = made.document.model_copy(update={"pictures": pictures})
    made.store.write(DOCUMENT, document.to_bytes())
    return document


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
    found = ["the accuracy on vectors is a stress test of the head; it does not estimate the accuracy on a pool"]
    if data.label is None:
        found.append("the class of a vector is the prediction for its source example, which may be wrong")
    if len(sources.far):
        far = ", ".join(names[i] for i in sources.far.tolist())
        found.append(f"no example is near a boundary of {far}: those of least confidence are used instead")
    left_out = [name for i, name in enumerate(names) if not (sources.label == i).any()]
    if left_out:
        found.append(f"there is no vector for {', '.join(left_out)}, which has fewer than two different examples")
    if head.kind == "logistic regression":
        found.append(
            "the model's outputs are not linear in its hidden layer, or not stored: a logistic regression of its "
            f"predictions is used instead, which agrees on {100 * head.agreement:.1f} % of the pool"
        )
    return found


SHEET = "contact-sheet.png"

MOST_IMAGES, LONGEST = 6000, 64
"""Images that a decoder learns from, and pixels of their longer side."""

COLUMNS, TILE, MARGIN = 10, 84, 6
"""Vectors of a row, pixels of a picture and between pictures."""


class Decoded(NamedTuple):
    """A set of vectors as pictures."""

    title: str
    images: NDArray[np.float32]  # (k, H, W, channels)
    labels: list[str]
    nearest: NDArray[np.float32]  # (k, H, W, channels) real ones
    distance: NDArray[np.float64]  # (k,) root mean squared difference of pixels


def draw_pictures(run: Run, made: Made, names: Sequence[str], seed: int = 0) -> Pictures:
    """Train a decoder on images of the run's pool, decode some vectors of each set, and write a contact sheet.

    Raises
    ------
    DataError
        The pool holds no images, or they changed since the run was made.
    """
    from opacc_ray.datasets.decoder import train_decoder

    hidden, images = read_images(run)
    with Progress("decode", "epochs") as progress:
        decoder = train_decoder(hidden, images, seed=seed, progress=progress)
    shown = []
    for own, vectors in zip(made.document.sets, made.vectors, strict=True):
        picked = _pick(vectors.label, np.random.default_rng(seed))
        decoded = decoder.images(vectors.hidden[picked])
        nearest, distance = find_nearest(decoded, images)
        title = f"{own.shares} (centroid-boundary), {own.count} vectors, accuracy {own.accuracy:.3f}"
        shown.append(Decoded(title, decoded, _captions(vectors, picked, names), images[nearest], distance))
    made.store.write(SHEET, sheet(shown, decoder.error))
    return Pictures(
        file=made.store.uri_of(SHEET),
        images=len(images),
        error=decoder.error,
        baseline=decoder.baseline,
        epochs=decoder.epochs,
        distance=float(np.median(np.concatenate([item.distance for item in shown]))),
    )


def read_images(run: Run) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return features (N, m) and images (N, H, W, channels) in [0, 1] of the first examples of a run's pool."""
    pool, there = run.spec.pool, run.read_features()
    if pool.holds_features or there is None:
        raise DataError(f"the pool of {run.uri} holds no images, which a decoder learns from; leave --pictures out")
    plan, features = plan_pool(pool, run.spec.extract), there.features
    if plan.digest != run.header.pool.digest or len(plan.shards) != len(there.index.shards):
        raise DataError(f"{pool.uri} has changed since it was listed for the run; leave --pictures out")
    store, rules = open_pool(pool), rules_of(pool)
    images: dict[str, NDArray[Any]] = {}
    ids: list[str] = []
    held = [shard for shard, own in zip(plan.shards, there.index.shards, strict=True) if own.examples]
    for part, shard in enumerate(held):
        ids += features.ids(part)
        for item in read_examples(store, pool.format, shard, rules):
            if isinstance(item, Example) and len(images) < MOST_IMAGES:
                images[item.id] = _pixels(item.array)
        if len(images) >= MOST_IMAGES:
            break
    known = [(place, images[id]) for place, id in enumerate(ids) if id in images]
    shapes = {image.shape for _, image in known}
    if len(shapes) != 1:
        raise DataError(f"the images of {pool.uri} differ in size, such as {sorted(shapes)[:2]}; leave --pictures out")
    places = np.array([place for place, _ in known], dtype=np.int64)
    return features.rows(["hidden"], places)["hidden"], np.stack([image for _, image in known])


def find_nearest(
    decoded: NDArray[np.float32], real: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest of N real pictures for each of k, (k,), and its RMS distance by pixels."""
    a, b = (images.reshape(len(images), -1) for images in (decoded, real))
    squares = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)  # (k, N)
    nearest = squares.argmin(axis=1)
    return nearest, np.sqrt(((a - b[nearest]).astype(np.float64) ** 2).mean(axis=1))


def sheet(shown: Sequence[Decoded], error: float) -> bytes:
    """Return a PNG: for each set a row of decoded vectors, each above its nearest real image."""
    from PIL import Image, ImageDraw

    step, block = TILE + MARGIN, 2 * TILE + 66
    canvas = Image.new("RGB", (COLUMNS * step + MARGIN + 90, 44 + block * len(shown)), "white")
    draw = ImageDraw.Draw(canvas)
    notes = (
        "Decoded vectors are illustrations, not data. d: RMS distance to the nearest real image, shown below.",
        f"Error of the decoder on images that it did not learn from: {error:.3f}. "
        "(c) near centroid, (b) near a boundary; class > what the head says.",
    )
    for line, note in enumerate(notes):
        draw.text((MARGIN, 6 + 16 * line), note, "black")
    for row, item in enumerate(shown):
        top = 44 + block * row
        draw.text((MARGIN, top), item.title, "black")
        draw.text((MARGIN, top + 18 + TILE // 2), "decoded", "black")
        draw.text((MARGIN, top + 48 + TILE + TILE // 2), "nearest real", "black")
        for column, (image, real) in enumerate(zip(item.images, item.nearest, strict=True)):
            left = 90 + column * step
            canvas.paste(_tile(image), (left, top + 16))
            draw.text((left, top + 18 + TILE), item.labels[column], "black")
            canvas.paste(_tile(real), (left, top + 32 + TILE))
            draw.text((left, top + 34 + 2 * TILE), f"d = {item.distance[column]:.3f}", "black")
    sink = io.BytesIO()
    canvas.save(sink, "PNG")
    return sink.getvalue()


def _pick(label: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return some random vectors, in the order of their classes (n,)."""
    order = rng.permutation(len(label))
    by_class = order[np.argsort(label[order], kind="stable")]
    return by_class[np.linspace(0, len(label) - 1, min(COLUMNS, len(label))).astype(int)]


def _captions(vectors: Vectors, picked: NDArray[np.int64], names: Sequence[str]) -> list[str]:
    """Return the class of each vector, a differing prediction of the head, and its region."""
    captions = []
    for k in picked.tolist():
        own, predicted = names[vectors.label[k]], names[vectors.predicted[k]]
        text = own[:11] if vectors.label[k] == vectors.predicted[k] else f"{own[:5]}>{predicted[:5]}"
        captions.append(f"{text} ({'c' if vectors.near_centroid[k] else 'b'})")
    return captions


def _pixels(array: NDArray[Any]) -> NDArray[Any]:
    """Return an example as (H, W, channels) in [0, 1], at most LONGEST pixels on a side."""
    from PIL import Image

    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (1, 3)):
        raise DataError(f"an example of shape {array.shape} and {array.dtype} is no 8-bit image; leave --pictures out")
    pixels = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
    if max(pixels.shape[:2]) > LONGEST:
        image = Image.fromarray(pixels)
        image.thumbnail((LONGEST, LONGEST))
        pixels = np.asarray(image)
    scaled = pixels.astype(np.float32) / 255
    return scaled[..., None] if scaled.ndim == 2 else scaled


def _tile(image: NDArray[np.float32]) -> Any:
    from PIL import Image

    pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    plain = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return plain.resize((TILE, TILE), Image.Resampling.NEAREST).convert("RGB")
