"""Pictures of generated vectors: a decoder learns from features and their images, and a contact sheet shows some.

The decoder is small, of transposed convolutions, and trained on features and their images:
S. Mani et al. 2019, section 4.3, after A. Dosovitskiy, T. Brox, "Inverting Visual Representations with Convolutional
Networks", CVPR 2016: it maps features to their image and minimises the mean squared error of pixels.

    m features, standardised → linear → 48 maps of H/4 × W/4 → transposed convolutions ×2, ×2 → H × W × channels

A tenth of the images is held out: training ends when the error on them has not fallen for some epochs, and the best
epoch is kept. A decoder returns an image for any vector, also for one that no real image produces: a decoded vector is
an illustration, not data.

Legend: N images of H × W pixels, m neurons.
"""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from opacc_ray.audit.progress import Progress
from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize.characterization_documents import GeneratedSet, Pictures
from opacc_ray.extensions.characterize.generation import Vectors
from opacc_ray.lake.store_uris import Store

Images = NDArray[np.float32]  # (n, H, W, channels) in [0, 1]

MAPS = 48, 24
"""Feature maps after the first layer and between the two transposed convolutions."""

BATCH = 64
PATIENCE = 3
"""Epochs without a lower error after which training ends."""

LEAST = 50
"""Least number of images for training."""


class Decoder(NamedTuple):
    """A trained decoder."""

    network: nn.Module
    mean: NDArray[np.float32]  # (m,)
    scale: NDArray[np.float32]  # (m,)
    error: float  # root mean squared error on the images held out
    baseline: float  # the same for the mean image as the prediction
    epochs: int

    def images(self, hidden: NDArray[np.float32]) -> Images:
        """Return the images (n, H, W, channels) of features (n, m)."""
        with torch.no_grad():
            made = self.network(torch.from_numpy((hidden - self.mean) / self.scale))
        return np.ascontiguousarray(made.permute(0, 2, 3, 1).numpy())


class _Network(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """The network from standardised features to images."""

    def __init__(self, width: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.height, self.width, channels = shape
        self.low = -(-self.height // 4), -(-self.width // 4)
        self.first = nn.Linear(width, MAPS[0] * self.low[0] * self.low[1])
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.ConvTranspose2d(*MAPS, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(MAPS[1], channels, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        maps = self.first(hidden).reshape(-1, MAPS[0], *self.low)
        return self.layers(maps)[:, :, : self.height, : self.width]


def train_decoder(
    hidden: NDArray[np.float32],
    images: Images,
    *,
    epochs: int = 25,
    seed: int,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Decoder:
    """Train on features (N, m) and their images (N, H, W, channels), for ``epochs`` at most.

    ``seed`` is that of the weights, the order and the images held out; ``progress`` is called with the number of epochs
    done and the maximum.

    Raises
    ------
    DataError
        Fewer images than LEAST, or a different number of features.
    """
    if len(images) < LEAST or len(images) != len(hidden):
        raise DataError(
            f"there are {len(images)} images for {len(hidden)} feature vectors; give {LEAST} or more, one per vector"
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    held, own = order[: len(order) // 10], order[len(order) // 10 :]
    mean, scale = hidden[own].mean(axis=0), hidden[own].std(axis=0) + 1e-6
    inputs = torch.from_numpy(((hidden - mean) / scale).astype(np.float32))
    targets = torch.from_numpy(np.moveaxis(images, -1, 1).copy())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _Network(hidden.shape[1], (images.shape[1], images.shape[2], images.shape[3]))
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    best, kept, since, done = np.inf, network.state_dict(), 0, 0
    for done in range(1, epochs + 1):
        for rows in torch.from_numpy(rng.permutation(own)).split(BATCH):
            loss = nn.functional.mse_loss(network(inputs[rows]), targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        error = _error(network, inputs[held], targets[held])
        progress(done, epochs)
        since += 1
        if error < best:
            best, since = error, 0
            kept = {name: value.clone() for name, value in network.state_dict().items()}
        elif since == PATIENCE:
            break
    network.load_state_dict(kept)
    baseline = float(np.sqrt(((images[held] - images[own].mean(axis=0)) ** 2).mean()))
    return Decoder(network, mean.astype(np.float32), scale.astype(np.float32), best, baseline, done)


def _error(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the root mean squared error."""
    with torch.no_grad():
        parts = zip(inputs.split(1024), targets.split(1024), strict=True)
        squares = [float(((network(some) - target) ** 2).sum()) for some, target in parts]
    return float(np.sqrt(sum(squares) / targets.numel()))


SHEET = "contact-sheet.png"

LONGEST = 64
"""Pixels of the longer side of images that a decoder learns from."""

COLUMNS, TILE, MARGIN = 10, 84, 6
"""Vectors of a row, pixels of a picture and between pictures."""


class Decoded(NamedTuple):
    """A set of vectors as pictures."""

    title: str
    images: NDArray[np.float32]  # (k, H, W, channels)
    labels: list[str]
    nearest: NDArray[np.float32]  # (k, H, W, channels) real ones
    distance: NDArray[np.float64]  # (k,) root mean squared difference of pixels


def learn_pictures(hidden: NDArray[np.float32], arrays: Sequence[NDArray[Any]], seed: int) -> tuple[Decoder, Images]:
    """Train a decoder on features (N, m) and the decoded examples that they belong to; return these as images, too.

    Raises
    ------
    DataError
        The examples are no images, or their sizes differ.
    """
    images = [_pixels(array) for array in arrays]
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise DataError(
            f"the images of the pool differ in size, such as {sorted(shapes)[:2]}, and a decoder makes one size; leave "
            "--pictures out"
        )
    stacked = np.stack(images)
    with Progress("decode", "epochs") as progress:
        return train_decoder(hidden, stacked, seed=seed, progress=progress), stacked


def draw_pictures(
    decoder: Decoder,
    images: Images,
    sets: Sequence[tuple[GeneratedSet, Vectors]],
    names: Sequence[str],
    store: Store,
    seed: int,
) -> Pictures:
    """Decode some vectors of each set, and write a contact sheet with their nearest real images."""
    shown = []
    for own, vectors in sets:
        picked = _pick(vectors.label, np.random.default_rng(seed))
        decoded = decoder.images(vectors.hidden[picked])
        nearest, distance = find_nearest(decoded, images)
        title = f"{own.shares} (centroid-boundary), {own.count} vectors, accuracy {own.accuracy:.3f}"
        shown.append(Decoded(title, decoded, _captions(vectors, picked, names), images[nearest], distance))
    store.write(SHEET, sheet(shown, decoder.error))
    return Pictures(
        file=store.uri_of(SHEET),
        images=len(images),
        error=decoder.error,
        baseline=decoder.baseline,
        epochs=decoder.epochs,
        distance=float(np.median(np.concatenate([item.distance for item in shown]))),
    )


def find_nearest(
    decoded: NDArray[np.float32], real: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest of N real pictures for each of k, (k,), and its RMS distance by pixels."""
    a, b = (images.reshape(len(images), -1) for images in (decoded, real))
    nearest = ((b**2).sum(axis=1) - 2 * a @ b.T).argmin(axis=1)  # of squared distances (k, N), less a² of each row
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
        "(c) near centroid, (b) near a boundary; class > what the model predicts.",
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
    by_class = np.lexsort((rng.permutation(len(label)), label))
    return by_class[np.linspace(0, len(label) - 1, min(COLUMNS, len(label))).astype(int)]


def _captions(vectors: Vectors, picked: NDArray[np.int64], names: Sequence[str]) -> list[str]:
    """Return the class of each vector, a differing prediction, and its region."""
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
    image = Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array)
    image.thumbnail((LONGEST, LONGEST))  # does not enlarge
    scaled = np.asarray(image).astype(np.float32) / 255
    return scaled[..., None] if scaled.ndim == 2 else scaled


def _tile(image: NDArray[np.float32]) -> Any:
    from PIL import Image

    pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    plain = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return plain.resize((TILE, TILE), Image.Resampling.NEAREST).convert("RGB")
