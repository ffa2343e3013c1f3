"""A torch model cut at a layer: its whole maps there, and the rest of the network for any maps.

The layer is replaced, not removed: the model runs on an input of the pool, and a hook exchanges what the layer returns
(or, for the last Linear layer, what it gets) for the given maps. So the code between the layers stays the model's own.
Whatever goes around the layer would come from that input and not from the maps: :func:`check_cut` finds it.

The model is cut in actors, which return the maps of examples at the layer and judge other maps. Activations are
computed in float32, whatever the precision of the run.

Legend: B examples, m numbers of a map over all positions and channels, C outputs.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from opacc_ray.cluster import session
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.characterize.classes import blocks
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.inference import load_transform, read_output, run_model, transformed
from opacc_ray.extract.torch_model import Model
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.pools import read_in_order
from opacc_ray.pool import Pool
from opacc_ray.runs.run import Run, unchanged_plan
from opacc_ray.spec import ModelSpec, PoolSpec, Spec, open_pool, rules_of, see_modules

if TYPE_CHECKING:
    from opacc_ray.cluster.tasks import Ask

SAME = 1e-3
"""Largest difference of outputs of the model and of the cut one, as a share of the outputs' standard deviation."""

Floats = NDArray[np.float32]


class Recorded(NamedTuple):
    """What the model sees and returns for B examples."""

    arrays: list[NDArray[Any]]  # as decoded
    maps: Floats  # (B, m)
    output: Floats  # (B, C) as the model returns it
    shape: tuple[int, ...]  # of a map
    inputs: Floats  # (1, ...) the first transformed example


class CutModel:
    """A torch model with a hook at one layer, and the transform of its inputs: what an actor holds.

    Parameters
    ----------
    spec : of the model and of extraction
    layer : dotted name of a layer whose output is replaced; None: ``model.hidden_layer``, or else what the last Linear
        layer gets
    modules : folder with the user's modules
    device : "cpu" or "cuda"

    Raises SpecError if there is no such layer.
    """

    def __init__(self, spec: Spec, layer: str | None, modules: str = ".", device: str = "cpu") -> None:
        see_modules(modules)
        self._transform = load_transform(spec)
        self._batch_size = spec.extract.batch_size
        self._model = Model(spec.model, device, "float32", spec.extract.threads_per_actor)
        self._seen: torch.Tensor | None = None
        self._given: Floats | None = None
        self._is_hooked = False
        self.layer = layer or spec.model.hidden_layer
        layers = dict(self._model.module.named_modules())
        if self.layer in layers:
            layers[self.layer].register_forward_hook(lambda _, __, output: self._at(output))
            self._is_hooked = True
        elif self.layer is not None:
            known = ", ".join(name for name in layers if name)
            raise SpecError(f"--layer {self.layer}: the model has no such layer; it has {known}")

    def run(self, inputs: Floats, maps: Floats | None = None) -> Floats:
        """Return the outputs (B, C) for inputs (B, ...), the layer replaced by maps (B, m) if these are given."""
        if not self._is_hooked:
            self._hook_last(inputs)
        self._seen, self._given = None, maps
        return run_model(self._model, inputs).output

    def maps(self) -> tuple[Floats, tuple[int, ...]]:
        """Return the maps (B, m) of the last inputs, and the shape of one."""
        if self._seen is None:
            raise DataError(f"the model does not call the layer {self.layer!r}; name one that it calls")
        found = self._seen.cpu().numpy()
        return np.ascontiguousarray(found.reshape(len(found), -1)), found.shape[1:]

    def record(self, chosen: tuple[PoolSpec, Shard, tuple[str, ...]]) -> Recorded:
        """Run examples of a shard of a pool, in the order of their ids; raises DataError if one cannot be read now."""
        source, shard, ids = chosen
        examples = read_in_order(open_pool(source), source.format, shard, ids, rules_of(source))
        outputs, maps, inputs = [], [], []
        for rows in blocks(len(examples), self._batch_size):
            inputs.append(np.stack([transformed(self._transform, example) for example in examples[rows]]))
            outputs.append(self.run(inputs[-1]))
            maps.append(self.maps())
        arrays = [example.array for example in examples]
        flat = np.concatenate([values for values, _ in maps])
        return Recorded(arrays, flat, np.concatenate(outputs), maps[0][1], inputs[0][:1])

    def rest(self, given: tuple[Floats, Floats]) -> Floats:
        """Return the outputs (B, C) of the rest of the network for maps (B, m), run on copies of one input (1, ...)."""
        maps, beside = given
        batches = [maps[rows] for rows in blocks(len(maps), self._batch_size)]
        return np.concatenate([self.run(np.repeat(beside, len(own), axis=0), own) for own in batches])

    def _hook_last(self, inputs: Floats) -> None:
        """Hook the input of the Linear layer that is called last."""
        called: list[torch.nn.Module] = []  # Model refuses one without any
        parts = [part for part in self._model.module.modules() if isinstance(part, torch.nn.Linear)]
        hooks = [part.register_forward_pre_hook(lambda own, _: called.append(own)) for part in parts]
        run_model(self._model, inputs)
        for hook in hooks:
            hook.remove()
        called[-1].register_forward_pre_hook(lambda _, given: (self._at(given[0]), *given[1:]))
        self._is_hooked = True

    def _at(self, value: Any) -> torch.Tensor:
        """Keep a copy of the layer's value, or return the given one instead."""
        if not isinstance(value, torch.Tensor):
            raise DataError(
                f"the layer {self.layer!r} returns a {type(value).__name__}, not a tensor; name one of its parts"
            )
        if self._given is None:
            self._seen = value.detach().float().clone()  # the next layer may change it in place
            return value
        return torch.from_numpy(self._given).to(value, copy=True).reshape(value.shape)


def check_cut(output: Floats, rest: Floats, layer: str | None) -> None:
    """Raise DataError if the layer does not determine the outputs.

    ``output`` (B, C) are those of the model, and ``rest`` those of its rest for the maps of the same examples, run on
    the input of another one.
    """
    apart = np.abs(rest.astype(np.float64) - output).max()
    if not apart <= SAME * float(output.std()):
        where = f"its layer {layer!r}" if layer else "what its last Linear layer gets"
        raise DataError(
            f"the outputs of the model depend on more than {where}, such as a connection around it or chance; name "
            "with --layer one that all of the network goes through"
        )


# -- in actors -------------------------------------------------------------------------------------------------------

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
    beside: Floats  # (1, ...) input that the model runs on while its maps are replaced

    def outputs(self, maps: Floats) -> Floats:
        """Return the outputs, (n, C), as the model returns them."""
        parts = self.ask("rest", [(maps[rows], self.beside) for rows in blocks(len(maps), AT_ONCE)])
        return np.concatenate(parts)

    def probabilities(self, hidden: Floats) -> NDArray[np.float64]:
        """Return the probability of each class, (n, C)."""
        output = read_output(self.outputs(hidden), self.model, "float32")["output"].astype(np.float64)
        return output if self.model.output in ("probabilities", "probability") else np.asarray(softmax(output, axis=1))


class CutRun(NamedTuple):
    """Examples of a run at the cut."""

    maps: Floats  # (k, m)
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
    complete = source.complete_features()
    pairs = zip(unchanged_plan(source).shards, complete.index.shards, strict=True)
    features, shards = complete.features, [shard for shard, extracted in pairs if extracted.examples]
    with session.connected():
        from opacc_ray.cluster.tasks import spread  # imports Ray, which reads its token mode then

        make = partial(CutModel, run.spec, layer, os.getcwd())
        with spread(make, run.spec.extract, MOST_EXAMPLES // AT_ONCE) as ask:

            def record(num: int) -> tuple[NDArray[np.int64], list[Any]]:
                index, chosen = choose_examples(features, shards, num, seed)
                return index, ask("record", [(source.spec.pool, shard, ids) for shard, ids in chosen])

            _, (one,) = record(1)
            index, parts = record(min(MOST_EXAMPLES, MOST_NUMBERS // one.maps.shape[1]))
            maps, output = (np.concatenate([getattr(part, name) for part in parts]) for name in ("maps", "output"))
            rest = Rest(ask, run.spec.model, one.inputs)
            again = rest.outputs(maps)
            check_cut(output, again, layer or run.spec.model.hidden_layer)
            whole, agreeing = (read_output(one, run.spec.model, "float32")["prediction"] for one in (output, again))
            stored = to_numpy(features.take(["prediction"], index)["prediction"])
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
