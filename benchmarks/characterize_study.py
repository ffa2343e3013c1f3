"""Do EP, CP, BC, PBC and the shift tell anything? Tables that answer it.

    python benchmarks/characterize_study.py IMAGES CASES [--size N]

    IMAGES    a folder with fashion.npz (x_train, y_train, x_test, y_test) and fashion_lenet5.safetensors
    CASES     a folder of labelled cases (.npz) with hidden, logits, pred, label and confidence; others are left out

Two tables: how well each measure, and drift scores that people already use, rank the drop of accuracy over drifted
pools of Fashion-MNIST, by two models; and how well those of a class, or of a pair, rank its failures. Population
stability index and MMD are written out here, Jensen-Shannon is SciPy's, kernels are scikit-learn's.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import markdown_table as markdown
import numpy as np
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import spearmanr
from sklearn.metrics.pairwise import pairwise_distances, rbf_kernel
from sklearn.neural_network import MLPClassifier

from opacc_ray.extensions.characterize.classes import Clusters, Grouped, Metrics, Regions, find_clusters, measure
from opacc_ray.extensions.characterize.covariate_shift import measure_shift
from opacc_ray.extensions.study.drift import IMAGE_DRIFTS
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool

Forward = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Images (n, H, W) in [0, 1] -> hidden (n, m), logits (n, C)."""

Labelled = tuple[np.ndarray, np.ndarray]
"""Images and labels."""

REGIONS = Regions()
STRENGTHS = (1, 2, 3, 4)
CLASSES = 10


class Seen(NamedTuple):
    """Images as a model sees them."""

    pool: Pool
    label: np.ndarray  # (n,)

    @property
    def grouped(self) -> Grouped:
        return Grouped(view_of(self.pool), CLASSES)

    @property
    def accuracy(self) -> float:
        return float((self.pool.prediction == self.label).mean())


class Subject(NamedTuple):
    """A model, its training data and its test set."""

    name: str
    forward: Forward
    train: Seen
    images: np.ndarray  # of the test set
    label: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, metavar="IMAGES")
    parser.add_argument("cases", type=Path, metavar="CASES")
    parser.add_argument("--size", type=int, default=4000, help="images of a drifted pool")
    given = parser.parse_args()
    fashion = list(fashion_models(given.images))
    tables = [
        ("Which measure ranks the drop of accuracy", drift_table(fashion, given.size)),
        ("Which measure ranks the failures of classes, and of pairs", class_table(given.cases)),
    ]
    for title, rows in tables:
        print(f"**{title}**\n")
        print(markdown.header(next(rows)))
        for row in rows:
            print(markdown.row(row), flush=True)
        print()


# -- models ----------------------------------------------------------------------------------------------------------


def seen(forward: Forward, images: np.ndarray, label: np.ndarray) -> Seen:
    hidden, logits = forward(images)
    confidence = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
    return Seen(Pool(hidden=hidden, output=logits, prediction=logits.argmax(1), confidence=confidence), label)


def subject(
    name: str, forward: Forward, train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]
) -> Subject:
    return Subject(name, forward, seen(forward, *train), *test)


def fashion_models(folder: Path) -> Iterator[Subject]:
    with np.load(folder / "fashion.npz") as data:
        train = data["x_train"][:20_000] / np.float32(255), data["y_train"][:20_000].astype(np.int64)
        test = data["x_test"] / np.float32(255), data["y_test"].astype(np.int64)
    yield subject("Fashion, LeNet-5", lenet(folder), train, test)
    network = MLPClassifier((84,), max_iter=12, random_state=0, batch_size=256)
    network.fit(train[0].reshape(len(train[0]), -1), train[1])
    yield subject("Fashion, perceptron", perceptron(network), train, test)


def perceptron(network: Any) -> Forward:
    def forward(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (first, last), (bias, final) = network.coefs_, network.intercepts_
        hidden = np.maximum(images.reshape(len(images), -1) @ first + bias, 0)
        return hidden.astype(np.float32), (hidden @ last + final).astype(np.float32)

    return forward


def lenet(folder: Path) -> Forward:
    from safetensors.torch import load_file

    w = load_file(str(folder / "fashion_lenet5.safetensors"))

    def forward(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = torch.from_numpy(np.ascontiguousarray(images, dtype=np.float32))[:, None]
        with torch.no_grad():
            for layer in ("c1", "c2"):
                x = torch.conv2d(x, w[f"{layer}.weight"], w[f"{layer}.bias"]).relu()
                x = torch.max_pool2d(x, 2)
            x = x.flatten(1)
            for layer in ("f1", "f2"):
                x = torch.nn.functional.linear(x, w[f"{layer}.weight"], w[f"{layer}.bias"]).relu()
            return x.numpy(), torch.nn.functional.linear(x, w["out.weight"], w["out.bias"]).numpy()

    return forward


# -- drift -----------------------------------------------------------------------------------------------------------


def pools(model: Subject, size: int) -> Iterator[tuple[str, Seen]]:
    """Drifted pools by the name of their drift, and one that is not drifted."""
    rng = np.random.default_rng(1)
    order = rng.permutation(len(model.label))
    yield "none", seen(model.forward, model.images[order[:size]], model.label[order[:size]])
    for strength in STRENGTHS:
        for kind in ("dark", "noise", "occlusion", "blur"):
            own = rng.permutation(len(model.label))[:size]
            images = np.stack([IMAGE_DRIFTS[kind](image, strength / 4, rng) for image in model.images[own]])
            yield kind, seen(model.forward, images, model.label[own])
        share = np.where(np.isin(model.label, (2, 4, 6)), 1 + strength, 1 / (1 + strength))  # those often confused
        own = rng.choice(len(model.label), size, replace=False, p=share / share.sum())
        yield "class shares", seen(model.forward, model.images[own], model.label[own])


def scores(model: Subject, clusters: Clusters, base: Metrics, pool: Seen, rng: np.random.Generator) -> dict[str, float]:
    """Each measure as one number that should grow with the drop of accuracy."""
    train, found = model.train.pool, measure(pool.grouped, REGIONS, clusters)
    every = measure_shift(model.train.grouped, pool.grouped, 0)
    shifts = [s for s in every if s.value is not None]
    predicted = [np.bincount(side.prediction, minlength=CLASSES) / side.size for side in (train, pool.pool)]
    return {
        "EP: mean distance from the reference": float(np.abs(found.ep - base.ep).mean()),
        "CP: fall of the mean": float(np.nanmean(base.cp) - np.nanmean(found.cp)),
        "BC: rise of the mean": float(np.nanmean(found.bc) - np.nanmean(base.bc)),
        "PBC: rise of the largest pair": float(np.nanmax(found.pbc) - np.nanmax(base.pbc)),
        "shift: mean above its floor": float(np.mean([s.value - s.floor for s in shifts])) if shifts else np.nan,
        "moved: mean difference in standard deviations": float(np.mean([s.move.sd for s in every if s.move])),
        "mean confidence: its fall": float(train.confidence.mean() - pool.pool.confidence.mean()),
        "PSI of the confidence": stability(train.confidence, pool.pool.confidence),
        "Jensen-Shannon, predicted classes": float(jensenshannon(*predicted, base=2) ** 2),
        "MMD of the hidden layer": discrepancy(train.hidden, pool.pool.hidden, rng),
    }


def stability(before: np.ndarray, after: np.ndarray) -> float:
    """Population stability index over the tenths of ``before``: Σ (q - p) log(q / p), shares at least 1e-4."""
    edges = np.unique(np.quantile(before, np.linspace(0, 1, 11)[1:-1]))
    p, q = (np.bincount(np.searchsorted(edges, side), minlength=len(edges) + 1) / len(side) for side in (before, after))
    p, q = np.maximum(p, 1e-4), np.maximum(q, 1e-4)
    return float(((q - p) * np.log(q / p)).sum())


def discrepancy(before: np.ndarray, after: np.ndarray, rng: np.random.Generator, num: int = 1000) -> float:
    """Squared maximum mean discrepancy, unbiased, of 1,000 examples each; a Gaussian kernel of the median distance."""
    x, y = before[rng.permutation(len(before))[:num]], after[rng.permutation(len(after))[:num]]
    gamma = 1 / (2 * float(np.median(pairwise_distances(x[:300], y[:300]))) ** 2)
    within = [(rbf_kernel(side, gamma=gamma).sum() - len(side)) / (len(side) * (len(side) - 1)) for side in (x, y)]
    return float(sum(within) - 2 * rbf_kernel(x, y, gamma=gamma).mean())


def drift_table(subjects: list[Subject], size: int) -> Iterator[list[str]]:
    yield ["measure", *(f"{model.name}, {what}" for model in subjects for what in ("all drifts", "images only"))]
    columns = []
    for model in subjects:
        clusters, rng = find_clusters(model.train.grouped), np.random.default_rng(0)
        base = measure(model.train.grouped, REGIONS, clusters)
        rows = [(kind, pool.accuracy, scores(model, clusters, base, pool, rng)) for kind, pool in pools(model, size)]
        drops = np.array([rows[0][1] - accuracy for _, accuracy, _ in rows])
        print(f"{model.name}: accuracy falls by {drops.min():.3f} to {drops.max():.3f}", file=sys.stderr)
        is_image = np.array([kind != "class shares" for kind, _, _ in rows])
        for keep in (np.ones(len(rows), dtype=bool), is_image):
            columns.append(
                {name: ranked(np.array([r[2][name] for r in rows])[keep], drops[keep]) for name in rows[0][2]}
            )
    for name in columns[0]:
        yield [name, *(column[name] for column in columns)]


def ranked(score: np.ndarray, drop: np.ndarray) -> str:
    """Spearman's rank correlation, and its 95 % bootstrap interval over what is ranked."""
    known = np.isfinite(score)
    score, drop = score[known], drop[known]
    if len(score) < 5:
        return "–"
    rng = np.random.default_rng(0)
    again = [spearmanr(score[k], drop[k]).statistic for k in rng.integers(0, len(score), (1000, len(score)))]
    low, high = np.nanquantile(again, [0.025, 0.975])
    return f"{spearmanr(score, drop).statistic:.2f} [{low:.2f}, {high:.2f}]"


# -- classes and pairs -----------------------------------------------------------------------------------------------


def labelled_cases(folder: Path) -> Iterator[tuple[Path, Seen]]:
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as case:
            if {"hidden", "logits", "pred", "label", "confidence"} <= set(case):
                said = {"prediction": case["pred"].astype(np.int64), "confidence": case["confidence"].astype(float)}
                yield path, Seen(Pool(hidden=case["hidden"], output=case["logits"], **said), case["label"])


def class_table(folder: Path) -> Iterator[list[str]]:
    yield ["case", "accuracy", "BC, classes", "CP (falling), classes", "1 - confidence, classes", "PBC, pairs"]
    for path, case in labelled_cases(folder):
        found, said, label = measure(case.grouped, REGIONS), case.pool.prediction, case.label
        failing = np.array([(label[said == i] != i).mean() for i in range(CLASSES)])
        unsure = np.array([1 - case.pool.confidence[said == i].mean() for i in range(CLASSES)])
        taken = np.array([[((said == i) & (label == j)).mean() for j in range(CLASSES)] for i in range(CLASSES)])
        pairs = ~np.eye(CLASSES, dtype=bool)
        share = (found.pbc * found.num[:, None])[pairs]
        ranks = [ranked(own, failing) for own in (found.bc, -found.cp, unsure)]
        yield [path.stem, f"{case.accuracy:.3f}", *ranks, ranked(share, taken[pairs])]


if __name__ == "__main__":
    main()
