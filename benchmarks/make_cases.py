"""Make the labelled cases that the tables of docs/results are measured on, from data that anyone can get.

    python benchmarks/make_cases.py FOLDER [--fashion FASHION.npz] [--deepest FOLDER]
    python benchmarks/make_cases.py FOLDER --numbers [--downloads FOLDER]       # those of study_tables.py numbers

The second command writes tables that others have published: see public_tables.py. By the first,
six classifiers and one regression are trained here, with fixed seeds:

    digits_field     a CNN on scikit-learn's handwritten digits; the pool is 10,000 distorted scans of other digits
    digits_swapped   the same network, trained with the labels 7 and 1 exchanged: it fails with confidence
    digits_angle     a network that predicts by how many degrees a scan is rotated (regression)
    fashion          LeNet-5 on Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, MIT licence); the pool is its test set
    fashion_occluded the same model on test images with a black square
    fashion_swapped  the same network, trained with the labels 2 and 4 exchanged

and five cases are the files that the authors of DeepEST published (https://github.com/dessertlab/DeepEST).

The case of a classifier is FOLDER/NAME.npz with hidden, logits, pred, label, confidence, dsa and lsa, and its training
examples as train_hidden, train_pred and train_label. Missing data is downloaded and compared with the digests below.
Networks are trained on the CPU in one thread: cases differ between machines by rounding only. It takes five minutes.
"""

import argparse
import gzip
import hashlib
import io
import shutil
from pathlib import Path

import numpy as np
import public_tables
import torch
from numpy.typing import NDArray
from public_tables import download
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional
from train_digits import field_pool, halves, load, to_input, train

from opacc_ray.extensions.demo import digits
from opacc_ray.extract.reference import Reference

POOL_SIZE = 10_000
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_FILES = {  # MD5, from the data set's own page
    "x_train": ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    "y_train": ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
    "x_test": ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
    "y_test": ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
}
DEEPEST = "https://raw.githubusercontent.com/dessertlab/DeepEST/master/metrics_datasets/"
DEEPEST_FILES = ("CN12_CIFAR10.csv", "CN5_MNIST.csv", "LN5_MNIST.csv", "VGG16_CIFAR10.csv", "VGG16_CIFAR100.csv")

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


class LeNet5(nn.Module):
    """(B, 1, 28, 28) in [0, 1] to scores (B, 10); the last hidden layer has 84 neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.f1, self.f2 = nn.Linear(256, 120), nn.Linear(120, 84)
        self.out = nn.Linear(84, 10)

    def hidden(self, x: Tensor) -> Tensor:
        for convolution in (self.c1, self.c2):
            x = functional.max_pool2d(torch.relu(convolution(x)), 2)
        return torch.relu(self.f2(torch.relu(self.f1(x.flatten(1)))))

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.hidden(x))
        return scores


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path)
    found.add_argument("--fashion", type=Path, help="an .npz with x_train, y_train, x_test and y_test")
    found.add_argument("--deepest", type=Path, help="a folder with the five files of DeepEST")
    found.add_argument("--numbers", action="store_true", help="make the cases of study_tables.py numbers instead")
    found.add_argument("--downloads", type=Path, help="a folder with the files of public_tables.py")
    given = found.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.numbers:
        return public_tables.make_tables(given.folder, given.downloads)
    torch.set_num_threads(1)
    for make in (make_digits, make_angle):
        make(given.folder)
    make_fashion(given.folder, read_fashion(given.fashion))
    for name in DEEPEST_FILES:
        if given.deepest:
            shutil.copyfile(given.deepest / name, given.folder / name)
        else:
            (given.folder / name).write_bytes(download(DEEPEST + name))
        print(given.folder / name)


def make_digits(folder: Path) -> None:
    images, labels = load()
    clean, operational = halves(labels, seed=0)
    scans, truth = field_pool(images[operational], labels[operational], POOL_SIZE, seed=0)
    for name, taught in (("digits_field", labels[clean]), ("digits_swapped", swapped(labels[clean], 7, 1))):
        network = digits.digits_cnn()
        network.load_state_dict(train(images[clean], taught, seed=0))
        body, head = nn.Sequential(network.features, network.hidden), network.head
        write_case(folder / f"{name}.npz", body, head, (images[clean], labels[clean]), (scans, truth))


def make_fashion(folder: Path, data: dict[str, NDArray[np.uint8]]) -> None:
    train, test = (data["x_train"], data["y_train"].astype(int)), (data["x_test"], data["y_test"].astype(int))
    occluded = test[0].copy()
    occluded[:, 9:19, 9:19] = 0
    plain, confused = train_lenet(*train), train_lenet(train[0], swapped(train[1], 2, 4))
    write_case(folder / "fashion.npz", plain.hidden, plain.out, train, test)
    write_case(folder / "fashion_occluded.npz", plain.hidden, plain.out, train, (occluded, test[1]))
    write_case(folder / "fashion_swapped.npz", confused.hidden, confused.out, train, test)


def make_angle(folder: Path) -> None:
    """The angle of a scan, by a network that has seen smaller ones."""
    images, labels = load()
    clean, operational = halves(labels, seed=0)
    rng = np.random.default_rng(0)

    def rotated(rows: Labels, spread: float) -> tuple[Tensor, NDArray[np.float64]]:
        angle = rng.normal(0, spread, len(rows))
        turned = [ndimage.rotate(images[i], a, reshape=False, order=1) for i, a in zip(rows, angle, strict=True)]
        return to_input(np.stack(turned)), angle

    inputs, angle = rotated(rng.choice(clean, 20_000), 15.0)
    torch.manual_seed(0)
    body = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
    head = nn.Linear(64, 1)
    fit(nn.Sequential(body, head), inputs, torch.from_numpy(angle / 15).float()[:, None], functional.mse_loss, epochs=8)
    inputs, angle = rotated(rng.choice(operational, POOL_SIZE), 20.0)
    with torch.no_grad():
        hidden = body(inputs)
        predicted = 15 * head(hidden)[:, 0].numpy()
    error = ((predicted - angle) ** 2).astype(np.float32)
    save(folder / "digits_angle.npz", hidden=hidden.numpy(), pred=predicted, target=angle, squared_error=error)


def swapped(labels: Labels, first: int, second: int) -> Labels:
    return np.where(labels == first, second, np.where(labels == second, first, labels))


def train_lenet(images: Images, labels: Labels) -> LeNet5:
    torch.manual_seed(0)
    network = LeNet5()
    fit(network, as_input(images), torch.from_numpy(labels), functional.cross_entropy, epochs=6)
    return network


def fit(network: nn.Module, inputs: Tensor, targets: Tensor, loss: object, epochs: int) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(128):
            optimizer.zero_grad()
            loss(network(inputs[batch]), targets[batch]).backward()  # type: ignore[operator]
            optimizer.step()
        decay.step()


def write_case(
    path: Path, body: object, head: nn.Module, train: tuple[Images, Labels], pool: tuple[Images, Labels]
) -> None:
    """Write what a classifier makes of its training data and of a pool, (images, labels) each."""
    train_hidden, train_logits = outputs(body, head, train[0])
    hidden, logits = outputs(body, head, pool[0])
    train_pred, pred = train_logits.argmax(1), logits.argmax(1)
    reference = Reference(train_hidden, train_pred)
    save(
        path,
        hidden=hidden,
        logits=logits,
        pred=pred,
        label=pool[1],
        confidence=torch.softmax(torch.from_numpy(logits), 1).numpy().max(1),
        dsa=reference.dsa(hidden, pred),
        lsa=reference.lsa(hidden, pred),
        train_hidden=train_hidden,
        train_pred=train_pred,
        train_label=train[1],
    )


def outputs(body: object, head: nn.Module, images: Images) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The last hidden layer and the scores of images, (B, m) and (B, C)."""
    with torch.no_grad():
        hidden = torch.cat([body(batch) for batch in as_input(images).split(1000)])  # type: ignore[operator]
        return hidden.numpy(), head(hidden).numpy()


def as_input(images: Images) -> Tensor:
    return to_input(images)


def save(path: Path, **arrays: NDArray[np.generic]) -> None:
    np.savez_compressed(path, **arrays)
    print(path)


def read_fashion(path: Path | None) -> dict[str, NDArray[np.uint8]]:
    if path:
        with np.load(path) as archive:
            return {name: archive[name] for name in FASHION_FILES}
    found = {}
    for name, (file, digest) in FASHION_FILES.items():
        data = download(FASHION + file)
        if hashlib.md5(data, usedforsecurity=False).hexdigest() != digest:
            raise SystemExit(f"{FASHION}{file} is not the file that was published: its MD5 is not {digest}")
        raw = gzip.GzipFile(fileobj=io.BytesIO(data)).read()
        found[name] = np.frombuffer(raw, np.uint8, offset=16 if name.startswith("x") else 8)
        found[name] = found[name].reshape(-1, 28, 28) if name.startswith("x") else found[name]
    return found


if __name__ == "__main__":
    main()
