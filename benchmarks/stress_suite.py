"""A stress suite of images made from generated vectors, labelled by a stronger model: docs/results/stress.md.

    python benchmarks/stress_suite.py FOLDER [--count N] [--suite N] [--epochs N]

    FOLDER    with fashion.npz (x_train, y_train, x_test, y_test) and fashion_lenet5.safetensors

Cuts a LeNet-5 at its second convolution, which has negative values, and at its last hidden layer. Vectors of both are
judged by the remaining layers, decoded, and fed back to the whole model. A stronger network, trained on the images and
on blurred copies of them since decoded images are blurred, plays the annotator.
"""

import argparse
import csv
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import markdown_table as markdown
import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch import nn

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.characterization_documents import Generation
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.report.generated_vectors import Asked, Wanted, generate_for
from opacc_ray.runs.feature_store import read_column
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

LAYERS = ("c2", "f2")
COLUMNS = ("", "second convolution (c2)", "last hidden layer (f2)")
ROWS = (
    "numbers of a vector",
    "agreement of the rest of the network with the whole model",
    "accuracy on vectors near boundaries",
    "accuracy on vectors near centroids",
    "error of the decoder (mean image)",
    "decoded vectors on which the whole model agrees",
    "images of the suite",
    "of which the annotator confirms the class that they were made for",
    "near centroids",
    "near boundaries",
    "accuracy of the model on the suite",
    "accuracy of the model on the pool",
)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, metavar="FOLDER")
    found.add_argument("--count", type=int, default=600, help="vectors, half of them near boundaries")
    found.add_argument("--suite", type=int, default=200, help="images of the suite")
    found.add_argument("--epochs", type=int, default=2, help="of the annotator's training")
    return found


def main() -> None:
    given = parser().parse_args()
    sys.path.insert(0, str(Path(__file__).parent))  # actors import the network from here
    torch.set_num_threads(1)
    data = np.load(given.folder / "fashion.npz")
    apart = ProcessPoolExecutor(1, get_context("spawn"))  # on another core
    annotator = apart.submit(train, data["x_train"], data["y_train"], given.epochs)
    with tempfile.TemporaryDirectory() as home, apart:
        (Path(home) / "pool").mkdir()
        np.save(Path(home) / "pool" / "images.npy", data["x_test"])
        weights = str((given.folder / "fashion_lenet5.safetensors").resolve())
        content = {
            "name": "fashion",
            "pool": {"uri": f"{home}/pool", "format": "npy"},
            "model": {"factory": "fashion_job:LeNet5", "weights": weights, "hidden_layer": "f2"},
            "sample": {"method": "srs", "budget": 100},
            "output": f"{home}/runs",
        }
        run = verbs.run(parse_spec(content, "fashion"))
        pool = float((read_column(run, "prediction") == data["y_test"]).mean())
        made = [generated(run, layer, given.count, given.suite, home) for layer in LAYERS]
        shown = [measured(found, annotator.result()) for found in made]
    print(markdown.header(COLUMNS))
    for row, values in zip(ROWS, zip(*([*column, f"{pool:.4f}"] for column in shown), strict=True), strict=True):
        print(markdown.row([row, *values]))
    right = (predicted(annotator.result(), data["x_test"]) == data["y_test"]).mean()
    print(f"\nAccuracy of the annotator on the images of the pool: {right:.4f}.")


def generated(run: Run, layer: str, count: int, size: int, home: str) -> Generation:
    """Vectors of a layer, half of them near boundaries, and their suite."""
    asked = Asked([Wanted(0.0, count // 2), Wanted(1.0, count // 2)], layer=layer, suite=size)
    return generate_for(run, asked, f"{home}/{layer}")


def measured(found: Generation, annotator: nn.Module) -> list[str]:
    """The cells of a layer, as :data:`ROWS` names them, but for the last one."""
    assert found.pictures is not None
    assert found.suite is not None
    with open(found.suite.table, newline="") as file:
        rows = list(csv.DictReader(file))
    folder = Path(found.suite.table).parent / "images"
    images = np.stack([np.asarray(Image.open(folder / row["id"])) for row in rows])
    seen = predicted(annotator, images)
    suite = Run.open(found.suite.run)
    labels = [f"{row['id']},{own}" for row, own in zip(rows, seen.tolist(), strict=True)]
    import_labels(suite, "labels.csv", "\n".join(["id,label", *labels]).encode())
    confirmed = np.array([row["class"] for row in rows]) == seen.astype(str)
    near = np.array([row["region"] == "centroid" for row in rows])
    boundary, centroid = found.sets
    shape = " × ".join(map(str, found.shape or ()))
    return [
        f"{np.prod(found.shape or (0,))} ({shape})",
        f"{100 * found.agreement:.2f} %",
        f"{boundary.accuracy:.3f}",
        f"{centroid.accuracy:.3f}",
        f"{found.pictures.error:.3f} ({found.pictures.baseline:.3f})",
        f"{100 * found.suite.agreed:.1f} %",
        str(found.suite.images),
        f"{100 * confirmed.mean():.1f} %",
        f"{100 * confirmed[near].mean():.1f} % of {near.sum()}",
        f"{100 * confirmed[~near].mean():.1f} % of {(~near).sum()}",
        f"{accuracy.estimate(suite).value:.4f}",
    ]


def network() -> nn.Module:
    """Two convolutions with more channels and normalisation: (B, 1, 28, 28) -> (B, 10)."""
    return nn.Sequential(
        *(nn.Conv2d(1, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(48 * 49, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)),
    )


def train(images: np.ndarray, labels: np.ndarray, epochs: int) -> nn.Module:
    """Train the annotator: each image as it is, or blurred, at random."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng, model = np.random.default_rng(0), network()
    blurred = np.stack([gaussian_filter(image, 0.8) for image in images])
    steps = epochs * (len(images) // 128)
    optimiser = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=4e-3, total_steps=steps)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(order) - 127, 128):
            rows = order[start : start + 128]
            mixed = np.where(rng.random(len(rows))[:, None, None] < 0.5, images[rows], blurred[rows])
            loss = nn.functional.cross_entropy(model(inputs_of(mixed)), torch.from_numpy(labels[rows].astype(np.int64)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return model.eval()


def inputs_of(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(images.astype(np.float32) / 255)[:, None]


def predicted(model: nn.Module, images: np.ndarray) -> np.ndarray:
    """Predicted classes (n,)."""
    with torch.inference_mode():
        parts = [model(inputs_of(images[start : start + 1000])).argmax(1) for start in range(0, len(images), 1000)]
    return torch.cat(parts).numpy()


if __name__ == "__main__":
    main()
