"""A stress suite: vectors decoded to images that the whole model predicts as it predicted the vectors, for annotators.

A decoded vector is an illustration of the vector, and the model may see something else in it. So each image goes
through the whole model, and is kept if its prediction is that of the rest of the network for the vector. What the
images show is unknown until people label them: the suite is a run of its own, whose pool is the images, all chosen.
"""

import csv
import hashlib
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit import verbs
from opacc_ray.audit.characterization_documents import StressSuite
from opacc_ray.datasets.classes import blocks
from opacc_ray.datasets.generation import Vectors
from opacc_ray.errors import DataError
from opacc_ray.labels.formats.csv_file import spreadsheet_safe
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import Store
from opacc_ray.report.rest_of_network import AT_ONCE, CutRun
from opacc_ray.report.vector_pictures import Learned
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

COLUMNS = ("id", "class", "predicted", "region", "confidence", "source")


class Decoded(NamedTuple):
    """The images of a suite, written."""

    uri: str  # of their folder
    format: str
    images: int
    vectors: int  # that were decoded
    agreed: float  # share of them that were kept, before the suite was drawn from them
    table: str  # URI


def decode_suite(
    own: CutRun, learned: Learned, sets: Sequence[Vectors], num: int, names: Sequence[str], store: Store, seed: int
) -> Decoded:
    """Decode vectors, keep those on which the whole model agrees, and write ``num`` of these at most, at random.

    Raises
    ------
    DataError
        The whole model agrees on none.
    """
    hidden, predicted, label, near, confidence, source = (
        np.concatenate([getattr(made, name) for made in sets])
        for name in ("hidden", "predicted", "label", "near_centroid", "confidence", "source")
    )
    arrays = np.concatenate([_arrays(learned, hidden[rows], own.arrays[0]) for rows in blocks(len(hidden), AT_ONCE)])
    kept = np.flatnonzero(own.whole(arrays)["prediction"] == predicted)
    if not len(kept):
        raise DataError(
            f"the whole model predicts none of {len(hidden)} decoded vectors as its rest predicted the vector: the "
            "decoder loses what the layer holds; name a later --layer, or leave --suite out"
        )
    taken = np.random.default_rng(seed).permutation(kept)[:num]
    kind, files = _files(arrays[taken])
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:8]
    folder = store.store(f"suite-{digest}")
    folder.store("images").write_many(files.items())
    ids = list(files) if kind == "images" else [f"images.npy:{row}" for row in range(len(taken))]
    sink = io.StringIO()
    table = csv.writer(sink, lineterminator="\n")
    table.writerow(COLUMNS)
    for id, row in zip(ids, taken.tolist(), strict=True):
        region = "centroid" if near[row] else "boundary"
        shown = [spreadsheet_safe(names[own_class]) for own_class in (label[row], predicted[row])]
        table.writerow([id, *shown, region, f"{confidence[row]:.4f}", own.places[source[row]]])
    folder.write("suite.csv", sink.getvalue().encode())
    images = folder.store("images").uri
    return Decoded(images, kind, len(taken), len(hidden), len(kept) / len(hidden), folder.uri_of("suite.csv"))


def run_suite(run: Run, decoded: Decoded) -> StressSuite:
    """Audit the model of a run on a suite, all of whose images are chosen for labelling."""
    spec = run.spec
    given: dict[str, Any] = spec.model_dump(include={"seed", "model", "transform", "output"})
    content = given | {
        "name": f"{spec.name[:90]}-suite",
        "pool": {"uri": decoded.uri, "format": decoded.format},
        "labels": spec.labels.model_dump(exclude={"overlap"}),
        "extract": spec.extract.model_dump(exclude={"features", "coverage"}),
        "sample": {"method": "srs", "budget": decoded.images},
    }
    made = verbs.run(parse_spec(content, "the suite"))
    return StressSuite(
        run=made.uri, images=decoded.images, decoded=decoded.vectors, agreed=decoded.agreed, table=decoded.table
    )


def _arrays(learned: Learned, hidden: NDArray[np.float32], like: NDArray[Any]) -> NDArray[np.uint8]:
    """Return decoded vectors (n, m) as examples with the shape of ``like``, (n, ...)."""
    from PIL import Image

    pixels = np.rint(255 * learned.decoder.images(hidden)).astype(np.uint8)  # (n, H, W, channels)
    size = like.shape[1], like.shape[0]  # the decoder may have learned smaller ones
    plain = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    made = np.stack([np.asarray(Image.fromarray(image).resize(size)) for image in plain])
    return made.reshape(len(made), *like.shape)


def _files(arrays: NDArray[np.uint8]) -> tuple[str, dict[str, bytes]]:
    """Return arrays (n, ...) as PNG files if their pixels are read back in the same shape, else as one array file."""
    if arrays.ndim == 4 and arrays.shape[-1] == 1:
        sink = io.BytesIO()
        np.save(sink, arrays)
        return "npy", {"images.npy": sink.getvalue()}
    return "images", {f"{row:05d}.png": encode_png(array) for row, array in enumerate(arrays)}
