"""A run's model cut at a layer, in actors: maps of examples at the layer, and the rest of the network as a judge."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.cluster import session
from opacc_ray.datasets.classes import blocks
from opacc_ray.datasets.head import Array, shares_of
from opacc_ray.errors import DataError
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.inference import read_output
from opacc_ray.extract.shards import Columns
from opacc_ray.lake.examples import Shard
from opacc_ray.pool import Pool
from opacc_ray.runs.feature_store import unchanged_plan
from opacc_ray.runs.run import Run
from opacc_ray.spec import ModelSpec

if TYPE_CHECKING:
    from opacc_ray.cluster.spread import Ask

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

    def whole(self, arrays: NDArray[Any]) -> Columns:
        """Return output, prediction and confidence of the whole model for arrays (n, ...) like the examples."""
        parts = self.rest.ask("whole", [arrays[rows] for rows in blocks(len(arrays), AT_ONCE)])
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


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
    return "torch is not installed here" if importlib.util.find_spec("torch") is None else None


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
    from opacc_ray.extract.cut_model import CutNetwork, Wanted, check_cut

    features, shards = stored_shards(source)
    with session.connected():
        from opacc_ray.cluster.spread import spread  # imports Ray, which reads its token mode then

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
            own, agreeing = (read_output(one, run.spec.model, "float32")["prediction"] for one in (output, again))
            stored = features.rows(["prediction"], index)["prediction"]
            arrays = [array for part in parts for array in part.arrays]
            agreement = float((agreeing == stored).mean())
            yield CutRun(maps, own, one.shape, index, arrays, rest, agreement)


def stored_shards(run: Run) -> tuple[Features, list[Shard]]:
    """Return the features of a run, and the shard of its pool of each of their files.

    Raises DataError if the pool holds features, extraction is incomplete, or the pool has changed since then.
    """
    if run.spec.pool.holds_features:
        raise DataError(f"the pool of {run.uri} holds no inputs of the model; give a run whose pool does")
    there = run.complete_features()
    shards = zip(unchanged_plan(run).shards, there.index.shards, strict=True)
    return there.features, [shard for shard, own in shards if own.examples]


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
