"""The classifier head, for a model that cannot be run: from stored features to probabilities of classes.

If the outputs of a model are linear in its last hidden layer, least squares recover its last layer from the stored
features, without the model. If they are not, a multinomial logistic regression of the predicted classes replaces it.
:attr:`Head.kind` names which one is used.

Legend: N examples, m neurons, C classes.
"""

from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.datasets.classes import Grouped, blocks
from opacc_ray.datasets.covariate_shift import part_hidden
from opacc_ray.pool import Pool

Array = NDArray[np.float64]

LINEAR = 1e-3
"""Largest unexplained share of the outputs' standard deviation for outputs that are linear in the hidden layer."""

FITTED = 1000
"""Examples of each class to which a logistic regression is fitted."""


class Judge(Protocol):
    """A classifier of features."""

    def probabilities(self, hidden: NDArray[np.float32]) -> Array:
        """Return the probability of each class, (n, C), for features (n, m)."""


def shares_of(output: Array) -> Array:
    """Return the softmax of outputs (n, C), computed in their memory."""
    output -= output.max(axis=1, keepdims=True)
    np.exp(output, out=output)
    output /= output.sum(axis=1, keepdims=True)
    return output


class Head(NamedTuple):
    """Outputs = hidden · weight + bias."""

    weight: Array  # (m, C)
    bias: Array  # (C,)
    kind: Literal["last layer", "logistic regression"]
    agreement: float  # share of the examples for which it predicts the class of the model

    def probabilities(self, hidden: NDArray[np.float32] | Array) -> Array:
        """Return the probability of each class, (n, C), for features (n, m)."""
        return shares_of(hidden.astype(np.float64) @ self.weight + self.bias)


def find_head(data: Grouped, *, probabilities: bool = False, seed: int) -> Head:
    """Recover or fit the head of the model from ``data``.

    Parameters
    ----------
    data : hidden and prediction, and output for the model's own layer; labels are ignored
    probabilities : whether outputs are probabilities; else they are logits
    seed : of the examples that a logistic regression is fitted to
    """
    predicted = Grouped(data.view, data.num_classes)
    linear = _last_layer(predicted, probabilities) if "output" in data.view.fields else None
    weight, bias = linear if linear else _logistic_regression(predicted, seed)
    agreeing = sum(predicted.map(part_agreeing, weight, bias))
    return Head(weight, bias, "last layer" if linear else "logistic regression", agreeing / data.view.size)


def _last_layer(data: Grouped, probabilities: bool) -> tuple[Array, Array] | None:
    """Return weight and bias, or None if the outputs are not linear in the hidden layer."""
    answers = data.view.map(part_products, data.num_classes, probabilities)
    if any(answer is None for answer in answers):
        return None
    inner, cross, squares, total = (np.stack(each).sum(axis=0) for each in zip(*answers, strict=True))
    found = np.linalg.pinv(inner, rcond=1e-12, hermitian=True) @ cross  # (m + 1, C)
    residual = squares - 2 * (found * cross).sum(axis=0) + np.einsum("ic,ij,jc->c", found, inner, found)
    spread = squares - total**2 / inner[-1, -1]
    if (residual > LINEAR**2 * spread).any():
        return None
    return found[:-1], found[-1]


def part_products(part: Pool, num_classes: int, probabilities: bool) -> tuple[Array, Array, Array, Array] | None:
    """Sum [h 1]'[h 1], [h 1]'z, z² and z over examples, z the outputs less their mean; None unless there are C."""
    assert part.hidden is not None
    assert part.output is not None
    if part.output.shape[1] != num_classes:
        return None
    width = part.hidden.shape[1] + 1
    inner, cross = np.zeros((width, width)), np.zeros((width, num_classes))
    squares, total = np.zeros(num_classes), np.zeros(num_classes)
    for rows in blocks(part.size):
        hidden = np.column_stack([part.hidden[rows], np.ones(rows.stop - rows.start)])  # (rows, m + 1) float64
        output = part.output[rows].astype(np.float64)
        if probabilities:
            output = np.log(np.maximum(output, 1e-38))
        output -= output.mean(axis=1, keepdims=True)  # softmax does not depend on it
        inner += hidden.T @ hidden
        cross += hidden.T @ output
        squares += (output**2).sum(axis=0)
        total += output.sum(axis=0)
    return inner, cross, squares, total


def part_agreeing(part: Pool, classes: NDArray[np.int64], num_classes: int, weight: Array, bias: Array) -> int:
    """Count the examples of a part for which the head predicts the class of the model."""
    assert part.hidden is not None
    own = [(part.hidden[rows] @ weight + bias).argmax(axis=1) for rows in blocks(part.size)]
    return int((np.concatenate(own) == classes).sum())


def _logistic_regression(data: Grouped, seed: int) -> tuple[Array, Array]:
    """Fit weight (m, C) and bias (C,) by maximum likelihood with a small ridge, on some examples of each class."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    rng, classes = np.random.default_rng(seed), data.classes()
    taken = [rng.permutation(np.flatnonzero(classes == i))[:FITTED] for i in range(data.num_classes)]
    index = np.sort(np.concatenate(taken))
    hidden, predicted = data.view.take(part_hidden, index).astype(np.float64), classes[index]
    mean, scale = hidden.mean(axis=0), hidden.std(axis=0) + 1e-9
    inputs = np.column_stack([(hidden - mean) / scale, np.ones(len(index))])  # (k, m + 1)
    target = np.eye(data.num_classes)[predicted]

    def loss(flat: Array) -> tuple[float, Array]:
        weight = flat.reshape(inputs.shape[1], -1)
        logs = log_softmax(inputs @ weight, axis=1)
        value = float(5e-5 * (weight[:-1] ** 2).sum() - (logs * target).sum() / len(index))
        slope = inputs.T @ (np.exp(logs) - target) / len(index)
        slope[:-1] += 1e-4 * weight[:-1]
        return value, slope.ravel()

    start = np.zeros(inputs.shape[1] * data.num_classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B").x
    *weight, bias = found.reshape(inputs.shape[1], -1)
    weight /= scale[:, None]
    return weight, bias - mean @ weight
