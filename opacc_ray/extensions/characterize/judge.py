"""Judges of feature vectors: the rest of a model's network, or its last layer for a model that cannot be run.

The model is cut at a layer in actors, which return the maps of examples at the layer and judge other maps.

If the outputs of a model are linear in its last hidden layer, least squares recover its last layer from the stored
features, without the model.

Legend: N examples, m neurons, C classes.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.cluster import session
from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize.classes import blocks
from opacc_ray.extensions.characterize.covariate_shift import part_hidden
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.inference import read_output
from opacc_ray.lake.examples import Shard
from opacc_ray.packages import has_package
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.runs.feature_store import unchanged_plan
from opacc_ray.runs.run import Run
from opacc_ray.spec import ModelSpec

if TYPE_CHECKING:
    from opacc_ray.cluster.placement import Ask

Array = NDArray[np.float64]

LINEAR = 1e-3
"""Largest unexplained share of the outputs' standard deviation for outputs that are linear in the hidden layer."""

MOST_FITTED = 20_000
"""Examples that the last layer is recovered from."""


class Vectors(NamedTuple):
    """Generated feature vectors and the predictions of the judge."""

    hidden: NDArray[np.float32]  # (n, m)
    label: NDArray[np.int64]  # (n,) the class of its source example
    near_centroid: NDArray[np.bool_]  # (n,) requested region; False: near a boundary
    source: NDArray[np.int64]  # (n,) that example, in the data set
    towards: NDArray[np.int64]  # (n,) class of the centroid of its line
    step: NDArray[np.float64]  # (n,) t
    predicted: NDArray[np.int64]  # (n,)
    confidence: NDArray[np.float64]  # (n,)
    violates: NDArray[np.bool_]  # (n,)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return which vectors (n,) are predicted as their class without a violation."""
        return (self.predicted == self.label) & ~self.violates


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
    agreement: float  # share of the examples for which it predicts the class of the model

    def probabilities(self, hidden: NDArray[np.float32] | Array) -> Array:
        """Return the probability of each class, (n, C), for features (n, m)."""
        return shares_of(hidden.astype(np.float64) @ self.weight + self.bias)


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
    output = view.take(part_output, index) if "output" in view.fields else np.empty((0, 0))  # (k, C)
    if output.shape[1] == num_classes:
        hidden = view.take(part_hidden, index).astype(np.float64)
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


def part_output(part: Pool, rows: NDArray[np.int64]) -> Array:
    """Return the outputs of some rows, (k, C)."""
    assert part.output is not None
    return part.output[rows].astype(np.float64)


MOST_EXAMPLES = 6000
"""Examples whose maps, or images, are read."""

MOST_NUMBERS = 1 << 27
"""Numbers of all maps together: 512 MiB, and twice that in double precision for a while."""

AT_ONCE = 256
"""Vectors or examples that an actor gets at a time."""


class Rest(NamedTuple):
    """The layers of a model after the cut, as a judge of maps (n, m)."""

    ask: "Ask"
    model: ModelSpec
    beside: NDArray[np.float32]  # (1, ...) input that the model runs on while its maps are replaced

    def outputs(self, maps: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the outputs, (n, C), as the model returns them."""
        parts = self.ask("rest", [(maps[rows], self.beside) for rows in blocks(len(maps), AT_ONCE)])
        return np.concatenate(parts)

    def probabilities(self, hidden: NDArray[np.float32]) -> Array:
        """Return the probability of each class, (n, C)."""
        output = read_output(self.outputs(hidden), self.model, "float32")["output"].astype(np.float64)
        return output if self.model.output in ("probabilities", "probability") else shares_of(output)


class CutRun(NamedTuple):
    """Examples of a run at the cut."""

    maps: NDArray[np.float32]  # (k, m)
    prediction: NDArray[Any]  # (k,) of the model
    shape: tuple[int, ...]  # of a map
    places: NDArray[np.int64]  # (k,) in the pool of the run
    arrays: list[NDArray[Any]]  # (k) decoded examples
    rest: Rest
    agreement: float  # share of them with equal predictions of the rest and in the run

    @property
    def pool(self) -> Pool:
        """The examples, with their maps as the hidden layer."""
        return Pool(hidden=self.maps, prediction=self.prediction)


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


@contextmanager
def cut(run: Run, source: Run, layer: str | None, seed: int) -> Iterator[CutRun]:
    """Cut the model of ``run`` at a layer in actors, and record the maps of examples of the pool of ``source``.

    Raises
    ------
    SpecError
        The model has no such layer.
    DataError
        The layer does not determine the outputs, or the pool has changed since the run.
    """
    from opacc_ray.extensions.characterize.cut_model import CutNetwork, Wanted, check_cut

    complete = source.complete_features()
    pairs = zip(unchanged_plan(source).shards, complete.index.shards, strict=True)
    features, shards = complete.features, [shard for shard, extracted in pairs if extracted.examples]
    with session.connected():
        from opacc_ray.cluster.placement import spread  # imports Ray, which reads its token mode then

        make = partial(CutNetwork, run.spec, layer, os.getcwd())
        with spread(make, run.spec.extract, MOST_EXAMPLES // AT_ONCE) as ask:

            def record(num: int) -> tuple[NDArray[np.int64], list[Any]]:
                index, chosen = choose_examples(features, shards, num, seed)
                return index, ask("record", [Wanted(source.spec.pool, shard, ids) for shard, ids in chosen])

            _, (one,) = record(1)
            index, parts = record(min(MOST_EXAMPLES, MOST_NUMBERS // one.maps.shape[1]))
            maps, output = (np.concatenate([getattr(part, name) for part in parts]) for name in ("maps", "output"))
            rest = Rest(ask, run.spec.model, one.inputs)
            again = rest.outputs(maps)
            check_cut(output, again, layer or run.spec.model.hidden_layer)
            whole, agreeing = (read_output(one, run.spec.model, "float32")["prediction"] for one in (output, again))
            stored = features.rows(["prediction"], index)["prediction"]
            arrays = [array for part in parts for array in part.arrays]
            agreement = float((agreeing == stored).mean())
            yield CutRun(maps, whole, one.shape, index, arrays, rest, agreement)


def choose_examples(
    features: Features, shards: list[Shard], most: int, seed: int
) -> tuple[NDArray[np.int64], list[tuple[Shard, tuple[str, ...]]]]:
    """Choose examples of a pool at random, ``most`` at most: their places (k,), sorted, and their ids by shard."""
    sizes = features.sizes
    total, starts = sum(sizes), np.cumsum([0, *sizes])
    index = np.sort(np.random.default_rng(seed).choice(total, min(most, total), replace=False))
    chosen = []
    for part, shard in enumerate(shards):
        rows = index[(index >= starts[part]) & (index < starts[part + 1])] - starts[part]
        if len(rows):
            ids = features.ids(part)
            chosen.append((shard, tuple(ids[row] for row in rows.tolist())))
    return index, chosen
